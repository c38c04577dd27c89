{{/* The actors' autoscaler. */}}
{{- define "seedbed.validateActors" -}}
{{- $scaling := .Values.actor.autoscaling -}}
{{- if and (ne $scaling.type "none") (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
  {{- fail (printf "actor.autoscaling.minReplicas %v is more than maxReplicas %v: lower the one or raise the other" $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- if and (eq $scaling.type "keda") (eq .Values.metrics.type "none") -}}
  {{- fail "actor.autoscaling.type is keda and metrics.type is none: Prometheus would know nothing of the learner that KEDA asks about; say metrics.type: podMonitor, podMonitoring or annotations" -}}
{{- end -}}
{{- end -}}
