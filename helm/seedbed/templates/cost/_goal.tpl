{{/* The stop conditions and the run in any form: with another goal a finished release goes on. */}}
{{- define "seedbed.goal" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := include "seedbed.run" . -}}
{{ list $run (omit $stop "idle_s" "pending_s") | toJson | sha256sum | trunc 16 }}
{{- end -}}

{{/* Which release, and what ends or pauses it: arguments of the cost meter and of the last resort. */}}
{{- define "seedbed.meterArgs" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := include "seedbed.run" . -}}
- --release={{ include "seedbed.fullname" . }}
- --namespace={{ .Release.Namespace }}
- --budget={{ include "seedbed.setting" (dict "root" . "path" "stop.dollars") }}
{{- with $stop.idle_s }}
- --idle-s={{ . }}
{{- end }}
- --pending-s={{ include "seedbed.setting" (dict "root" . "path" "stop.pending_s") }}
- --run={{ $run }}
- --goal={{ include "seedbed.goal" . }}
{{- if .Values.paused }}
- --paused
{{- end }}
{{- if gt (int (include "seedbed.hosts" .)) 1 }}
- --hosts={{ include "seedbed.hosts" . }}
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
