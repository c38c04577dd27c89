{{/* The actors' autoscaler. */}}
{{- define "seedbed.validateActors" -}}
{{- $scaling := .Values.actor.autoscaling -}}
{{- if and (eq $scaling.type "hpa") (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
  {{- fail (printf "actor.autoscaling.minReplicas %v is more than maxReplicas %v" $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- end -}}
