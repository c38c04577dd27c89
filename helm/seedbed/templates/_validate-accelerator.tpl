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
{{- if eq $accelerator.type "tpu" }}{{ include "seedbed.validateTpuShape" $accelerator }}{{ end -}}
{{- $count := int $accelerator.count -}}
{{- if and (eq $accelerator.type "none") (ne $count 1) -}}
  {{- fail (printf "learner.accelerator.count is %d and type is none: say type: gpu or tpu, or leave count out" $count) -}}
{{- end -}}
{{- if and (eq $accelerator.type "gpu") (gt $count 1) -}}
  {{- fail (printf "learner.accelerator.count is %d and the learner uses one GPU: %d would stand idle and be paid; say count: 1" $count (sub $count 1)) -}}
{{- end -}}
{{- $device := dig "learner" "device" "auto" $experiment -}}
{{- $wanted := get (dict "gpu" "gpu" "tpu" "tpu" "none" "cpu") $accelerator.type -}}
{{- if not (has $device (list "auto" $wanted)) -}}
  {{- fail (printf "experiment.learner.device is %s and learner.accelerator.type is %s: the chart sets the device of an accelerator; leave it out, or ask for another accelerator" $device $accelerator.type) -}}
{{- end -}}
{{- $backend := dig "learner" "backend" "tensorflow" $experiment -}}
{{- if and (eq $accelerator.type "tpu") (ne $backend "jax") -}}
  {{- fail (printf "learner.accelerator.type is tpu and experiment.learner.backend is %s: TPUs are reached through JAX; say experiment.learner.backend: jax" $backend) -}}
{{- end -}}
{{- end -}}

{{/* Shapes of GKE's TPUs. Flat ones have 1, 4 or 8 chips a host, the others 4. Call with the accelerator. */}}
{{- define "seedbed.validateTpuShape" -}}
{{- $flat := list "tpu-v5-lite-podslice" "tpu-v6e-slice" -}}
{{- $cubes := list "tpu-v4-podslice" "tpu-v5p-slice" "tpu7x" -}}
{{- if not (has .name (concat $flat $cubes)) -}}
  {{- fail (printf "learner.accelerator.name %q is no TPU: %s" .name (concat $flat $cubes | join ", ")) -}}
{{- end -}}
{{- $chips := 1 -}}
{{- range splitList "x" .topology }}{{ $chips = mul $chips (int .) }}{{ end -}}
{{- $shapes := list "1x1" "2x2" "2x4" "4x4" "4x8" "8x8" "8x16" "16x16" -}}
{{- $cube := and (eq (len (splitList "x" .topology)) 3) (eq (mod $chips 4) 0) -}}
{{- if and (has .name $flat) (not (has .topology $shapes)) -}}
  {{- fail (printf "learner.accelerator.topology %s is no shape of %s: %s" .topology .name ($shapes | join ", ")) -}}
{{- end -}}
{{- if and (has .name $cubes) (not $cube) -}}
  {{- fail (printf "learner.accelerator.topology %s is no shape of %s: 2x2x1 is one host with four chips" .topology .name) -}}
{{- end -}}
{{- if gt $chips (has .name $flat | ternary 8 4 | int64) -}}
  {{- fail (printf "learner.accelerator.topology %s has %d chips on %d hosts, and a learner is a pod of one host: say topology: %s" .topology $chips (div $chips 4) (has .name $flat | ternary "1x1" "2x2x1")) -}}
{{- end -}}
{{- if ne (int $chips) (int .count) -}}
  {{- fail (printf "learner.accelerator.topology %s has %d chip%s and count is %v: a pod must ask for all chips of its host, or it is never scheduled" .topology $chips (eq (int $chips) 1 | ternary "" "s") .count) -}}
{{- end -}}
{{- if and (has .name $flat) (gt (int $chips) 1) -}}
  {{- fail (printf "learner.accelerator.topology %s has %d chips and the learner uses one: %d would stand idle and be paid; say topology 1x1, count 1" .topology $chips (sub $chips 1)) -}}
{{- end -}}
{{- end -}}
