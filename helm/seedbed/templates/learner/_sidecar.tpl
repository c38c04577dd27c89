{{/* Actors beside the learner, in its pod: they reach it over a socket in a shared folder. */}}

{{- define "seedbed.sidecar" -}}
{{- $actor := .Values.actor }}
- name: actor
  {{- include "seedbed.actorContainer" . | nindent 2 }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - /etc/seedbed/experiment.yaml
    - --learner={{ include "seedbed.socket" . }}
    - --processes={{ $actor.sidecar }}
    - --set=actor.metrics_port=0 # the pod has one port of that name
  {{- $env := printf "%s\n%s" (include "seedbed.env" .) (include "seedbed.credentialEnv" .) | fromYamlArray }}
  env: {{ include "seedbed.mergedEnv" (dict "env" $env "own" (include "seedbed.pod" (dict "root" . "component" "actor") | fromJson).env) }}
  securityContext:
    {{- include "seedbed.containerSecurity" . | nindent 4 }}
  resources:
    {{- range $kind, $amounts := $actor.resources }}
    {{ $kind }}:
      {{- range $name, $amount := $amounts }}
      {{ $name }}: {{ include "seedbed.times" (dict "amount" $amount "by" $actor.sidecar) | quote }}
      {{- end }}
    {{- end }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: actor-tmp, mountPath: /tmp}
    - {name: socket, mountPath: /run/seedbed}
    - {name: experiment, mountPath: /etc/seedbed, readOnly: true}
    {{- if .Values.auth.enabled }}
    - {name: actor-auth, mountPath: /etc/seedbed-auth, readOnly: true}
    {{- end }}
{{- end -}}

{{- define "seedbed.sidecarVolumes" -}}
- name: actor-tmp
  emptyDir: {}
- name: socket
  emptyDir: {}
{{- if .Values.auth.enabled }}
- name: actor-auth
  secret:
    secretName: {{ include "seedbed.authSecret" . }}
    items: [{key: actor, path: tokens}]
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "seedbed.socket" -}}unix:/run/seedbed/learner.sock{{- end -}}

{{/* An amount of Kubernetes, so many times. Call with (dict "amount" AMOUNT "by" NUMBER). */}}
{{- define "seedbed.times" -}}
{{- $number := toString .amount | regexFind "^[0-9.]+" -}}
{{ mulf (float64 $number) .by }}{{ trimPrefix $number (toString .amount) }}
{{- end -}}
