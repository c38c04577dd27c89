{{/* Numbers of pods, and whose they are. */}}
{{- define "seedbed.validateReplicas" -}}
{{- if kindIs "invalid" .Values.actor.replicas -}}
  {{- fail "actor.replicas is null: say how many actors there are to be; replicas: external leaves the field out of what is applied" -}}
{{- end -}}
{{- if kindIs "invalid" .Values.learner.replicas -}}
  {{- fail "learner.replicas is null: each learner must know how many there are, so say the number; replicas: external leaves the field out of what is applied" -}}
{{- end -}}
{{- $replicas := .Values.learner.replicas -}}
{{- if not (and (has (kindOf $replicas) (list "int" "int64" "float64")) (ge (float64 $replicas) 1.0) (eq (float64 $replicas) (floor $replicas))) -}}
  {{- fail (printf "learner.replicas is %v, which is no whole number from 1 up: say how many learners there are to be" $replicas) -}}
{{- end -}}
{{- $actors := .Values.actor.replicas -}}
{{- if not (and (has (kindOf $actors) (list "int" "int64" "float64")) (ge (float64 $actors) 0.0) (eq (float64 $actors) (floor $actors))) -}}
  {{- fail (printf "actor.replicas is %v, which is no whole number from 0 up: say how many actors there are to be; replicas: external leaves the field out" $actors) -}}
{{- end -}}
{{- if and .Values.paused (eq .Values.replicas "external") (not .Values.cost.enabled) -}}
  {{- fail "paused is true, replicas is external and cost.enabled is false: the cost meter would take the pods to zero; enable it, or kubectl scale them" -}}
{{- end -}}
{{- end -}}
