{{/* The budget and the prices. */}}
{{- define "seedbed.validateCost" -}}
{{- $dollars := include "seedbed.setting" (dict "root" . "path" "stop.dollars") | float64 -}}
{{- if and $dollars (not .Values.cost.enabled) -}}
  {{- fail (printf "experiment.stop.dollars is %v, and cost.enabled is false: nobody would count what the pods cost; enable the cost meter" $dollars) -}}
{{- end -}}
{{- $idle := include "seedbed.setting" (dict "root" . "path" "stop.idle_s") | float64 -}}
{{- if and $idle (not .Values.cost.enabled) -}}
  {{- fail (printf "experiment.stop.idle_s is %v, and cost.enabled is false: the cost meter is what pauses; enable it" $idle) -}}
{{- end -}}
{{- $accelerator := .Values.learner.accelerator -}}
{{- if and $dollars (ne $accelerator.type "none") (not $accelerator.name) -}}
  {{- fail (printf "experiment.stop.dollars is %v, and learner.accelerator.name is empty: which price counts is not known; name the accelerator, such as nvidia-l4" $dollars) -}}
{{- end -}}
{{- $priced := concat (include "seedbed.pricedAccelerators" . | fromJsonArray) (.Values.cost.prices.accelerators | default dict | keys) -}}
{{- range .Values.cost.prices.machines }}{{ $priced = append $priced .accelerator }}{{ end -}}
{{- if and $dollars (ne $accelerator.type "none") $accelerator.name (not (has $accelerator.name $priced)) -}}
  {{- fail (printf "experiment.stop.dollars is %v, and the price table has no price of learner.accelerator.name %q: the budget could be overspent many times; add cost.prices.accelerators.%s, or leave the budget out" $dollars $accelerator.name $accelerator.name) -}}
{{- end -}}
{{- if and (eq .Values.actor.autoscaling.type "price") (not .Values.cost.enabled) -}}
  {{- fail "actor.autoscaling.type is price and cost.enabled is false: the cost meter is what scales; enable it" -}}
{{- end -}}
{{- if and (include "seedbed.makesTokens" .) (not .Values.cost.enabled) -}}
  {{- fail "cost.enabled is false and auth.existingSecret is empty: the cost meter is what makes the tokens; name a Secret with the keys actor, learner, shard and observer (`seedbed tokens DIR` writes the files), or set auth.enabled: false" -}}
{{- end -}}
{{- if and .Values.cost.enabled (not .Values.rbac.create) (include "seedbed.makesTokens" .) -}}
  {{- fail (printf "rbac.create is false and auth.existingSecret is empty: the account seedbed-meter may make no Secret; make one, `seedbed tokens DIR && kubectl -n %s create secret generic %s-tokens --from-file=DIR`, and set auth.existingSecret: %s-tokens" .Release.Namespace .Release.Name .Release.Name) -}}
{{- end -}}
{{- end -}}

{{/* Accelerators of the table us-central1-aug-2026; tests/chart compares. */}}
{{- define "seedbed.pricedAccelerators" -}}
["nvidia-l4","nvidia-tesla-t4","nvidia-tesla-p100","nvidia-tesla-v100","nvidia-tesla-a100","nvidia-a100-80gb","nvidia-h100-80gb","tpu-v4-podslice","tpu-v5-lite-podslice","tpu-v5p-slice","tpu-v6e-slice","nvidia-rtx-pro-6000","nvidia-h100-mega-80gb","nvidia-h200-141gb","nvidia-b200"]
{{- end -}}
