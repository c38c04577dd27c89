{{/*
Shapes of GKE's TPUs, by the name of the accelerator. `hosts` has topologies with their hosts and the
chips of each, and `machines` the machine with so many chips; `devices` is how many JAX sees a chip.
*/}}
{{- define "seedbed.tpus" -}}
tpu-v5-lite-podslice:
  machines: {"1": ct5lp-hightpu-1t, "4": ct5lp-hightpu-4t, "8": ct5lp-hightpu-8t}
  hosts: {1x1: [[1, 1]], 2x2: [[1, 4]], 2x4: [[1, 8], [2, 4]], 4x4: [[4, 4]], 4x8: [[8, 4]], 8x8: [[16, 4]], 8x16: [[32, 4]], 16x16: [[64, 4]]}
  devices: 1
tpu-v6e-slice:
  machines: {"1": ct6e-standard-1t, "4": ct6e-standard-4t, "8": ct6e-standard-8t}
  hosts: {1x1: [[1, 1]], 2x2: [[1, 4]], 2x4: [[1, 8], [2, 4]], 4x4: [[4, 4]], 4x8: [[8, 4]], 8x8: [[16, 4]], 8x16: [[32, 4]], 16x16: [[64, 4]]}
  devices: 1
{{- $cubes := "{2x2x1: [[1, 4]], 2x2x2: [[2, 4]], 2x2x4: [[4, 4]], 2x4x4: [[8, 4]], 4x4x4: [[16, 4]], 4x4x8: [[32, 4]], 4x8x8: [[64, 4]], 8x8x8: [[128, 4]]}" }}
tpu-v4-podslice: {machines: {"4": ct4p-hightpu-4t}, hosts: {{ $cubes }}, devices: 1}
tpu-v5p-slice: {machines: {"4": ct5p-hightpu-4t}, hosts: {{ $cubes }}, devices: 1}
tpu7x: {machines: {"4": tpu7x-standard-4t}, hosts: {{ $cubes }}, devices: 2}
{{- end -}}

{{/* GPUs of one machine: what a pod may ask for without a part of the machine standing idle. */}}
{{- define "seedbed.gpus" -}}
nvidia-l4: [1, 2, 4, 8]
nvidia-tesla-t4: [1, 2, 4]
nvidia-tesla-p100: [1, 2, 4]
nvidia-tesla-v100: [1, 2, 4, 8]
nvidia-tesla-a100: [1, 2, 4, 8, 16]
nvidia-a100-80gb: [1, 2, 4, 8]
nvidia-h100-80gb: [1, 2, 4, 8]
nvidia-h100-mega-80gb: [8]
nvidia-h200-141gb: [8]
nvidia-b200: [8]
nvidia-rtx-pro-6000: [1, 2, 4, 8]
{{- end -}}

{{/* Devices that a host of the learner sees. */}}
{{- define "seedbed.devicesOfHost" -}}
{{- with .Values.learner.accelerator -}}
{{- $tpu := get (include "seedbed.tpus" $ | fromYaml) .name | default dict -}}
{{ mul .count (get $tpu "devices" | default 1) }}
{{- end -}}
{{- end -}}
