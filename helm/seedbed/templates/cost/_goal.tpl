{{/* The stop conditions and the run in any form: with another goal a finished release goes on. */}}
{{- define "seedbed.goal" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := include "seedbed.run" . -}}
{{ list $run (omit $stop "idle_s" "pending_s") | toJson | sha256sum | trunc 16 }}
{{- end -}}

{{/* Seconds after the end of an experiment at which its meter and the last resort go; 0: they stay. By an
upgrade alone do they come back, and what applies manifests again and again would make them for ever. */}}
{{- define "seedbed.meterTtl" -}}
{{- and .Values.rbac.create (ne .Values.replicas "external") | ternary (int .Values.cost.ttlSecondsAfterFinished) 0 -}}
{{- end -}}

{{/* Whether meter and last resort have gone, and nothing asks for them: "true" or nothing. */}}
{{- define "seedbed.meterHasLeft" -}}
{{- $state := include "seedbed.state" . | fromJson -}}
{{- $goal := include "seedbed.goal" . -}}
{{- $ended := and $state.finished $state.meterLeftAt (eq $goal ($state.goal | default $goal)) -}}
{{- if and $ended (not .Values.paused) (ne "0" (include "seedbed.meterTtl" .)) }}true{{ end -}}
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
{{- with .Values.set }}
- --set={{ . }}
{{- end }}
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
