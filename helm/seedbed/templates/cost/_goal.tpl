{{/* What ends or pauses the release, as arguments of the cost meter. Another --goal goes on after an
end: the stop conditions and the run are in it. */}}
{{- define "seedbed.goalArgs" -}}
{{- $stop := dig "stop" dict (include "seedbed.experimentValues" . | fromJson) -}}
{{- $run := .Values.learner.run | default (include "seedbed.fullname" .) -}}
- --budget={{ $stop.dollars | default 0 }}
{{- with $stop.idle_s }}
- --idle-s={{ . }}
{{- end }}
- --run={{ $run }}
- --goal={{ list $run (omit $stop "idle_s") | toJson | sha256sum | trunc 16 }}
{{- if .Values.paused }}
- --paused
{{- end }}
{{- if gt (int (include "seedbed.hosts" .)) 1 }}
- --hosts={{ include "seedbed.hosts" . }}
- --learner-kind={{ .Values.learner.workload }}
{{- end }}
{{- with .Values.replay.shards }}
- --replay={{ . }}
{{- end }}
{{- end -}}
