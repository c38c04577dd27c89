{{/*
A StatefulSet, a Deployment or what runs several hosts, with what the values add to its pods. Names win over the chart's: a label,
an annotation or a variable is there once, and `podSpec` comes last.
Call with (dict "component" NAME "values" VALUES "text" YAML).
*/}}
{{- define "seedbed.workload" -}}
{{- $values := .values -}}
{{- range $key, $instead := dict "containers" "extraContainers" "initContainers" "initContainers" "volumes" "extraVolumes" -}}
  {{- if hasKey $values.podSpec $key -}}
    {{- fail (printf "%s.podSpec.%s would take the place of the chart's: say %s.%s" $.component $key $.component $instead) -}}
  {{- end -}}
{{- end -}}
{{- $object := fromYaml .text -}}
{{- with $object.Error }}{{ fail . }}{{ end -}}
{{- $template := $object.spec.template -}}
{{- if eq $object.kind "JobSet" }}{{ $template = (first $object.spec.replicatedJobs).template.spec.template }}{{ end -}}
{{- if eq $object.kind "LeaderWorkerSet" }}{{ $template = $object.spec.leaderWorkerTemplate.workerTemplate }}{{ end -}}
{{- with $values.podAnnotations -}}
  {{- $_ := set $template.metadata "annotations" (mergeOverwrite ($template.metadata.annotations | default dict) .) -}}
{{- end -}}
{{- $spec := $template.spec -}}
{{- $main := first $spec.containers -}}
{{- $_ := set $main "env" (include "seedbed.mergedEnv" (dict "env" $main.env "own" $values.env) | fromJsonArray) -}}
{{- with $values.envFrom }}{{ $_ := set $main "envFrom" . }}{{ end -}}
{{- $mounts := concat $main.volumeMounts $values.extraVolumeMounts -}}
{{- $volumes := concat $spec.volumes $values.extraVolumes -}}
{{- with $values.shmSize -}}
  {{- $mounts = append $mounts (dict "name" "shm" "mountPath" "/dev/shm") -}}
  {{- $volumes = append $volumes (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .)) -}}
{{- end -}}
{{- $_ := set $main "volumeMounts" $mounts -}}
{{- $_ := set $spec "volumes" $volumes -}}
{{- $_ := set $spec "containers" (concat $spec.containers $values.extraContainers) -}}
{{- with $values.initContainers }}{{ $_ := set $spec "initContainers" (concat ($spec.initContainers | default list) .) }}{{ end -}}
{{- $_ := mergeOverwrite $spec (deepCopy $values.podSpec) -}}
{{- toYaml $object -}}
{{- end -}}

{{/* Variables of the chart without those of the same name in the values, and these. A JSON list. Call
with (dict "env" LIST "own" LIST). */}}
{{- define "seedbed.mergedEnv" -}}
{{- $names := list -}}
{{- range .own }}{{ $names = append $names .name }}{{ end -}}
{{- $env := list -}}
{{- range .env }}{{ if not (has .name $names) }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- concat $env .own | toJson -}}
{{- end -}}
