{{/* What the schema cannot say: pairs of values that do not fit. Each sentence says what to do. */}}
{{- define "seedbed.validate" -}}
{{- include "seedbed.validateHelm" . -}}
{{- include "seedbed.validateNames" . -}}
{{- include "seedbed.validateAmounts" . -}}
{{- include "seedbed.validateExperimentFile" . -}}
{{- include "seedbed.validatePodSpecs" . -}}
{{- include "seedbed.validateOwnPods" . -}}
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
{{- include "seedbed.validateChange" . -}}
{{- end -}}

{{/* Helm 3.18.0 gives templates every number as a text, and "0" is true. */}}
{{- define "seedbed.validateHelm" -}}
{{- if kindIs "string" .Values.replay.shards -}}
  {{- fail (printf "Helm %s reads numbers as texts, so that replay.shards 0 is true and starts shards: use a newer Helm, such as 3.19" .Capabilities.HelmVersion.Version) -}}
{{- end -}}
{{- end -}}
