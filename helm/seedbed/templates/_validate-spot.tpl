{{/* Spot. */}}
{{- define "seedbed.validateSpot" -}}
{{- range $role := list "learner" "actor" "replay" -}}
  {{- $workload := get $.Values $role -}}
  {{- $class := (include "seedbed.pod" (dict "root" $ "component" $role) | fromJson).computeClass -}}
  {{- if and $workload.spot $class -}}
    {{- fail (printf "%s.spot is true and %s.pod.computeClass is %s: the selector of Spot keeps the class from falling back to nodes on demand; say spot: false, and Spot first in the class" $role $role $class) -}}
  {{- end -}}
{{- end -}}
{{- $every := dig "learner" "checkpoint" "every_s" "" (include "seedbed.experimentValues" . | fromJson) -}}
{{- if and .Values.learner.spot (gt (float64 $every) 60.0) -}}
  {{- fail (printf "experiment.learner.checkpoint.every_s is %v and learner.spot is true: an eviction would cost so many seconds of training; say 60 or less, or leave it out" $every) -}}
{{- end -}}
{{- end -}}
