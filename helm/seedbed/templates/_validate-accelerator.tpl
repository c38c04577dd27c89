{{/* The learner's accelerator, its nodes and its backend. */}}
{{- define "seedbed.validateAccelerator" -}}
{{- $experiment := include "seedbed.experimentValues" . | fromJson -}}
{{- $learner := .Values.learner -}}
{{- $accelerator := $learner.accelerator -}}
{{- if and (eq $accelerator.type "tpu") (not (and $accelerator.name $accelerator.topology)) -}}
  {{- fail (printf "learner.accelerator: a tpu needs name (such as tpu-v6e-slice) and topology (such as 1x1); given name %q, topology %q" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "tpu") (hasKey $learner.nodeSelector "cloud.google.com/gke-accelerator") -}}
  {{- fail (printf "learner.nodeSelector asks for the GPU %q and learner.accelerator.type is tpu: no node has both; remove one" (get $learner.nodeSelector "cloud.google.com/gke-accelerator")) -}}
{{- end -}}
{{- if and (eq $accelerator.type "tpu") (not (hasPrefix "tpu" $accelerator.name)) -}}
  {{- fail (printf "learner.accelerator.name %q is no TPU: tpu-v6e-slice, tpu-v5-lite-podslice, tpu-v5p-slice, tpu-v4-podslice or tpu7x" $accelerator.name) -}}
{{- end -}}
{{- if and (eq $accelerator.type "gpu") (or $accelerator.topology (hasPrefix "tpu" $accelerator.name)) -}}
  {{- fail (printf "learner.accelerator.type is gpu, but name %q and topology %q are a TPU's: say type: tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "none") (or $accelerator.name $accelerator.topology) -}}
  {{- fail (printf "learner.accelerator.type is none, but name %q, topology %q ask for one: say type: gpu or tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- $gpuSelector := get $learner.nodeSelector "cloud.google.com/gke-accelerator" -}}
{{- if and $gpuSelector (eq $accelerator.type "none") -}}
  {{- fail (printf "learner.nodeSelector asks for nodes with the GPU %q and learner.accelerator.type is none: it would stand idle; say type: gpu, name: %s" $gpuSelector $gpuSelector) -}}
{{- end -}}
{{- if eq $accelerator.type "gpu" -}}
  {{- range $key, $value := $learner.nodeSelector -}}
    {{- if hasPrefix "cloud.google.com/gke-tpu" $key -}}
      {{- fail (printf "learner.nodeSelector asks for a TPU (%s: %s) and learner.accelerator.type is gpu: no node has both; remove one" $key $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $accelerator.type "tpu" -}}
  {{- $chips := 1 -}}
  {{- range splitList "x" $accelerator.topology }}{{ $chips = mul $chips (int .) }}{{ end -}}
  {{- if ne (int $chips) (int $accelerator.count) -}}
    {{- fail (printf "learner.accelerator.topology %s has %d chips and count is %v: a host's pod must ask for all of them, or it is never scheduled" $accelerator.topology $chips $accelerator.count) -}}
  {{- end -}}
{{- end -}}
{{- $backend := dig "learner" "backend" "tensorflow" $experiment -}}
{{- if and (eq $accelerator.type "tpu") (ne $backend "jax") -}}
  {{- fail (printf "learner.accelerator.type is tpu and experiment.learner.backend is %s: TPUs are reached through JAX; say experiment.learner.backend: jax, and take the learner's image for it" $backend) -}}
{{- end -}}
{{- end -}}
