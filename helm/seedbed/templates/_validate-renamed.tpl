{{/* Values of older charts, each with its new name. */}}
{{- define "seedbed.validateRenamed" -}}
{{- $said := list -}}
{{- range $old, $new := .Files.Get "renamed-values.yaml" | fromYaml -}}
  {{- $node := $.Values -}}
  {{- $there := true -}}
  {{- range $part := splitList "." $old -}}
    {{- $there = and $there (kindIs "map" $node) (hasKey $node $part) -}}
    {{- if $there }}{{ $node = get $node $part }}{{ end -}}
  {{- end -}}
  {{- if $there }}{{ $said = append $said (printf "%s: is %s now" $old $new) }}{{ end -}}
{{- end -}}
{{- with $said }}{{ fail (join "\n" .) }}{{ end -}}
{{- end -}}
