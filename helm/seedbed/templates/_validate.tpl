{{/* What the schema cannot say: pairs of values that do not fit. Each sentence says what to do. */}}
{{- define "seedbed.validate" -}}
{{- include "seedbed.validateRenamed" . -}}
{{- include "seedbed.validateNames" . -}}
{{- include "seedbed.validateExperimentFile" . -}}
{{- include "seedbed.validatePodSpecs" . -}}
{{- include "seedbed.validateReplicas" . -}}
{{- include "seedbed.validateQueue" . -}}
{{- include "seedbed.validateAccelerator" . -}}
{{- include "seedbed.validateHosts" . -}}
{{- include "seedbed.validateSpot" . -}}
{{- include "seedbed.validateStorage" . -}}
{{- include "seedbed.validateLearners" . -}}
{{- include "seedbed.validateReplay" . -}}
{{- include "seedbed.validateCost" . -}}
{{- include "seedbed.validateTls" . -}}
{{- include "seedbed.validateActors" . -}}
{{- include "seedbed.validateExperiment" . -}}
{{- end -}}
