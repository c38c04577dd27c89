{{/* The budget. */}}
{{- define "seedbed.validateCost" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $dollars := dig "stop" "dollars" 0 $experiment -}}
{{- if and $dollars (not .Values.cost.enabled) -}}
  {{- fail (printf "experiment.stop.dollars is %v, and cost.enabled is false: nobody would count what the pods cost; enable the cost meter" $dollars) -}}
{{- end -}}
{{- end -}}
