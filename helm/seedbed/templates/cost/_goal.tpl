{{/* The stop conditions and the run in any form: with another goal a finished release goes on. */}}
{{- define "seedbed.goal" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := .Values.learner.run | default (include "seedbed.fullname" .) -}}
{{ list $run (omit $stop "idle_s") | toJson | sha256sum | trunc 16 }}
{{- end -}}

{{/* What ends or pauses the release, as arguments of the cost meter. */}}
{{- define "seedbed.goalArgs" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := .Values.learner.run | default (include "seedbed.fullname" .) -}}
- --budget={{ include "seedbed.setting" (dict "root" . "path" "stop.dollars") }}
{{- with $stop.idle_s }}
- --idle-s={{ . }}
{{- end }}
- --run={{ $run }}
- --goal={{ include "seedbed.goal" . }}
{{- if .Values.paused }}
- --paused
{{- end }}
{{- if gt (int (include "seedbed.hosts" .)) 1 }}
- --hosts={{ include "seedbed.hosts" . }}
- --learner-kind={{ .Values.learner.workload }}
{{- if include "seedbed.several" . }}
- --learners={{ .Values.learner.replicas }}
{{- end }}
{{- end }}
{{- with .Values.replay.shards }}
- --replay={{ . }}
{{- end }}
{{- if include "seedbed.queuedSets" . }}
- --queued
{{- end }}
{{- end -}}
