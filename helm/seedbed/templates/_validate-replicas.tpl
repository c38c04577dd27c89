{{/* Numbers of pods, and whose they are. */}}
{{- define "seedbed.validateReplicas" -}}
{{- if kindIs "invalid" .Values.learner.replicas -}}
  {{- fail "learner.replicas is null: each learner must know how many there are, so say the number; replicas: external leaves the field out of what is applied" -}}
{{- end -}}
{{- if and .Values.paused (eq .Values.replicas "external") (not .Values.cost.enabled) -}}
  {{- fail "paused is true, replicas is external and cost.enabled is false: the cost meter would take the pods to zero; enable it, or kubectl scale them" -}}
{{- end -}}
{{- end -}}
