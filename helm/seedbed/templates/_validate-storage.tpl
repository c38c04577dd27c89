{{/* The learner's volume or bucket. */}}
{{- define "seedbed.validateStorage" -}}
{{- $learner := .Values.learner -}}
{{- $pvc := and (eq $learner.persistence.type "pvc") (not $learner.persistence.existingClaim) -}}
{{- $others := include "seedbed.several" . | empty | ternary "" ", and those of the other learners" -}}
{{- $way := printf "A larger one: kubectl edit pvc runs-%s-0%s, and leave learner.persistence as it is; another one: install another release" (include "seedbed.learner" .) $others -}}
{{- include "seedbed.validateClaim" (dict "root" . "name" (include "seedbed.learner" .) "path" "learner.persistence" "wanted" (ternary $learner.persistence dict $pvc) "way" $way) -}}
{{- if and $learner.persistence.existingClaim (ne $learner.persistence.type "pvc") -}}
  {{- fail (printf "learner.persistence.existingClaim %q is read with learner.persistence.type: pvc only, given %s" $learner.persistence.existingClaim $learner.persistence.type) -}}
{{- end -}}
{{- if and (eq $learner.persistence.type "none") (not $learner.persistence.checkpoints) .Values.cost.enabled -}}
  {{- fail "learner.persistence.type is none and learner.persistence.checkpoints is empty: at the end the cost meter takes the learner to zero, and the only copy of the result with it; say type: pvc, checkpoints: gs://BUCKET/PATH, or cost.enabled: false" -}}
{{- end -}}
{{- if and (eq $learner.persistence.type "gcsfuse") (not $learner.persistence.bucket) -}}
  {{- fail "learner.persistence.type is gcsfuse: learner.persistence.bucket must name the bucket" -}}
{{- end -}}
{{- if and (ne $learner.persistence.type "gcsfuse") $learner.persistence.bucket -}}
  {{- fail (printf "learner.persistence.bucket %q is read with learner.persistence.type: gcsfuse only, given %s" $learner.persistence.bucket $learner.persistence.type) -}}
{{- end -}}
{{- end -}}

{{/*
What a StatefulSet's claim must stay: its size as an amount, and its class. Call with
(dict "root" $ "name" STATEFULSET "path" VALUES "wanted" PERSISTENCE-OR-EMPTY "way" SENTENCE).
*/}}
{{- define "seedbed.validateClaim" -}}
{{- $live := lookup "apps/v1" "StatefulSet" .root.Release.Namespace .name -}}
{{- if $live -}}
  {{- $there := "no volume of its own" -}}
  {{- $amount := "" -}}
  {{- range $live.spec.volumeClaimTemplates -}}
    {{- $there = printf "a volume of %s, storage class %q" .spec.resources.requests.storage (.spec.storageClassName | default "") -}}
    {{- $amount = printf "%s %s" (include "seedbed.amount" .spec.resources.requests.storage) (.spec.storageClassName | default "") -}}
  {{- end -}}
  {{- $wanted := "none" -}}
  {{- $wantedAmount := "" -}}
  {{- with .wanted -}}
    {{- $wanted = printf "%v, storage class %q" .size .storageClass -}}
    {{- $wantedAmount = printf "%s %s" (include "seedbed.amount" .size) .storageClass -}}
  {{- end -}}
  {{- if ne $amount $wantedAmount -}}
    {{- fail (printf "%s cannot change in a release: it has %s, and %s is wanted. %s" .path $there $wanted (ternary .way "Leave it as it is, or install another release" (ne $amount ""))) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity as a plain number: 1Gi, 1024Mi and 1073741824 are the same. */}}
{{- define "seedbed.amount" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+([eE][+-]?[0-9]+)?" $text -}}
{{- $units := dict "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- printf "%.3f" (mulf (float64 $number) (get $units (trimPrefix $number $text) | default 1)) -}}
{{- end -}}
