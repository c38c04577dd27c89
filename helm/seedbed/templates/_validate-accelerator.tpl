{{/* The learner's accelerator, its nodes and its backend. */}}
{{- define "seedbed.validateAccelerator" -}}
{{- $learner := .Values.learner -}}
{{- $accelerator := $learner.accelerator -}}
{{- $selector := (include "seedbed.pod" (dict "root" . "component" "learner") | fromJson).nodeSelector -}}
{{- if and (eq $accelerator.type "tpu") (not (and $accelerator.name $accelerator.topology)) -}}
  {{- fail (printf "learner.accelerator: a tpu needs name (such as tpu-v6e-slice) and topology (such as 1x1); given name %q, topology %q" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "tpu") (hasKey $selector "cloud.google.com/gke-accelerator") -}}
  {{- fail (printf "learner.pod.nodeSelector asks for the GPU %q and learner.accelerator.type is tpu: no node has both; remove one" (get $selector "cloud.google.com/gke-accelerator")) -}}
{{- end -}}
{{- if and (eq $accelerator.type "gpu") (or $accelerator.topology (hasPrefix "tpu" $accelerator.name)) -}}
  {{- fail (printf "learner.accelerator.type is gpu, but name %q and topology %q are a TPU's: say type: tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- if and (eq $accelerator.type "none") (or $accelerator.name $accelerator.topology) -}}
  {{- fail (printf "learner.accelerator.type is none, but name %q, topology %q ask for one: say type: gpu or tpu" $accelerator.name $accelerator.topology) -}}
{{- end -}}
{{- $gpuSelector := get $selector "cloud.google.com/gke-accelerator" -}}
{{- if and $gpuSelector (eq $accelerator.type "none") -}}
  {{- fail (printf "learner.pod.nodeSelector asks for nodes with the GPU %q and learner.accelerator.type is none: it would stand idle; say type: gpu, name: %s" $gpuSelector $gpuSelector) -}}
{{- end -}}
{{- if eq $accelerator.type "gpu" -}}
  {{- range $key, $value := $selector -}}
    {{- if hasPrefix "cloud.google.com/gke-tpu" $key -}}
      {{- fail (printf "learner.pod.nodeSelector asks for a TPU (%s: %s) and learner.accelerator.type is gpu: no node has both; remove one" $key $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $accelerator.type "tpu" }}{{ include "seedbed.validateTpuShape" . }}{{ end -}}
{{- $count := int $accelerator.count -}}
{{- if and (eq $accelerator.type "none") (ne $count 1) -}}
  {{- fail (printf "learner.accelerator.count is %d and type is none: say type: gpu or tpu, or leave count out" $count) -}}
{{- end -}}
{{- $sizes := get (include "seedbed.gpus" . | fromYaml) $accelerator.name -}}
{{- if and (eq $accelerator.type "gpu") $sizes (not (has (float64 $count) $sizes)) -}}
  {{- fail (printf "learner.accelerator.count is %d, and no machine has so many %s: the rest of a larger one would stand idle and be paid; say %s" $count $accelerator.name (join " or " $sizes)) -}}
{{- end -}}
{{- $device := include "seedbed.setting" (dict "root" . "path" "learner.device") -}}
{{- $wanted := get (dict "gpu" "gpu" "tpu" "tpu" "none" "cpu") $accelerator.type -}}
{{- if not (has $device (list "auto" $wanted)) -}}
  {{- fail (printf "experiment.learner.device is %s and learner.accelerator.type is %s: the chart sets the device of an accelerator; leave it out, or ask for another accelerator" $device $accelerator.type) -}}
{{- end -}}
{{- $backend := include "seedbed.setting" (dict "root" . "path" "learner.backend") -}}
{{- if and (eq $accelerator.type "tpu") (ne $backend "jax") -}}
  {{- fail (printf "learner.accelerator.type is tpu and experiment.learner.backend is %s: TPUs are reached through JAX; say experiment.learner.backend: jax" $backend) -}}
{{- end -}}
{{- if and (eq (include "seedbed.setting" (dict "root" . "path" "learner.precision")) "tensorfloat32") (ne $accelerator.type "gpu") -}}
  {{- fail (printf "experiment.learner.precision is tensorfloat32, a format of NVIDIA GPUs, and learner.accelerator.type is %s: say bfloat16, or float32" $accelerator.type) -}}
{{- end -}}
{{- include "seedbed.validateDevices" . -}}
{{- end -}}

{{/* A TPU slice: its hosts, and the chips of each, as GKE has them. */}}
{{- define "seedbed.validateTpuShape" -}}
{{- $accelerator := .Values.learner.accelerator -}}
{{- $tpus := include "seedbed.tpus" . | fromYaml -}}
{{- $tpu := get $tpus $accelerator.name -}}
{{- if not $tpu -}}
  {{- fail (printf "learner.accelerator.name %q is no TPU: %s" $accelerator.name (keys $tpus | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $shapes := get $tpu.hosts $accelerator.topology -}}
{{- if not $shapes -}}
  {{- fail (printf "learner.accelerator.topology %s is no shape of %s: %s" $accelerator.topology $accelerator.name (keys $tpu.hosts | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $hosts := include "seedbed.hosts" . | int -}}
{{- $fits := list -}}
{{- $found := false -}}
{{- range $shapes -}}
  {{- $n := index . 0 | int -}}
  {{- $chips := index . 1 | int -}}
  {{- if and (eq $n $hosts) (eq $chips (int $accelerator.count)) }}{{ $found = true }}{{ end -}}
  {{- $fits = append $fits (printf "learner.hosts: %d with learner.accelerator.count: %d (%s)" $n $chips (get $tpu.machines (toString $chips))) -}}
{{- end -}}
{{- if not $found -}}
  {{- fail (printf "learner.accelerator.topology %s of %s does not fit %d host%s with %d chip%s each: a pod must ask for all chips of its host, and each host must have a pod; say %s" $accelerator.topology $accelerator.name $hosts (eq $hosts 1 | ternary "" "s") (int $accelerator.count) (eq (int $accelerator.count) 1 | ternary "" "s") (join ", or " (uniq $fits))) -}}
{{- end -}}
{{- end -}}

{{/* What the learner does with the devices that are rented. */}}
{{- define "seedbed.validateDevices" -}}
{{- $accelerator := .Values.learner.accelerator -}}
{{- $there := int (include "seedbed.devicesOfHost" .) -}}
{{- $backend := include "seedbed.setting" (dict "root" . "path" "learner.backend") -}}
{{- $acting := include "seedbed.setting" (dict "root" . "path" "learner.devices.inference") | int -}}
{{- $training := include "seedbed.setting" (dict "root" . "path" "learner.devices.training") | int -}}
{{- $used := add $acting $training | int -}}
{{- if eq $accelerator.type "none" -}}
  {{- if $acting -}}
    {{- fail (printf "experiment.learner.devices has %d devices and learner.accelerator.type is none: a pod without an accelerator has one device; say devices: auto, or ask for an accelerator" $used) -}}
  {{- end -}}
{{- else -}}
  {{- if and (gt $there 1) (ne $backend "jax") -}}
    {{- fail (printf "learner.accelerator.count is %v and experiment.learner.backend is %s, which uses one: %d would stand idle and be paid; say count: 1, or experiment.learner.backend: jax" $accelerator.count $backend (sub $there 1)) -}}
  {{- end -}}
  {{- if and $used (ne $used $there) -}}
    {{- fail (printf "experiment.learner.devices are %d for inference and %d for training, %d together, and learner.accelerator has %d on each host: make them equal, or say experiment.learner.devices: auto" $acting $training $used $there) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
