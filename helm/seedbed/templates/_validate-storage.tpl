{{/* The learner's volume or bucket. */}}
{{- define "seedbed.validateStorage" -}}
{{- $learner := .Values.learner -}}
{{- $live := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "seedbed.learner" .) -}}
{{- if $live -}}
  {{- $size := "" -}}
  {{- range $live.spec.volumeClaimTemplates }}{{ $size = .spec.resources.requests.storage }}{{ end -}}
  {{- $wanted := eq $learner.persistence.type "pvc" | ternary (toString $learner.persistence.size) "" -}}
  {{- if ne $size $wanted -}}
    {{- fail (printf "learner.persistence cannot change in a release: it has a volume of %q, and %q is wanted. A larger one: kubectl edit pvc runs-%s-0%s (leave learner.persistence.size as it is)" $size $wanted (include "seedbed.learner" .) (include "seedbed.several" . | empty | not | ternary ", and those of the other learners" "")) -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $learner.persistence.type "gcsfuse") (not $learner.persistence.bucket) -}}
  {{- fail "learner.persistence.type is gcsfuse: learner.persistence.bucket must name the bucket" -}}
{{- end -}}
{{- if and (ne $learner.persistence.type "gcsfuse") $learner.persistence.bucket -}}
  {{- fail (printf "learner.persistence.bucket %q is read with learner.persistence.type: gcsfuse only, given %s" $learner.persistence.bucket $learner.persistence.type) -}}
{{- end -}}
{{- end -}}
