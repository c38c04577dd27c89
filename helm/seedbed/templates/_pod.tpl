{{/* What every pod has in common. */}}

{{- define "seedbed.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "seedbed.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Only /tmp and the run directory can be written. */}}
{{- define "seedbed.env" -}}
- {name: HOME, value: /tmp}
- {name: KERAS_HOME, value: /tmp/seedbed-keras}
- {name: MPLCONFIGDIR, value: /tmp}
- {name: SEEDBED_METRICS_HOST, value: "::"} # probes and Prometheus come from elsewhere
{{- end -}}

{{/* What learner, actors and test mount. Volumes: call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: experiment, mountPath: /etc/seedbed, readOnly: true}
{{ include "seedbed.credentialMounts" . }}
{{- end -}}

{{/* /tmp, no larger than the local disk that the container asks for. Call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.tmpVolume" -}}
{{- $resources := (get .root.Values .component).resources -}}
{{- $asked := get ($resources.requests | default dict) "ephemeral-storage" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ get ($resources.limits | default dict) "ephemeral-storage" | default $asked | default "2Gi" }}}
{{- end -}}

{{- define "seedbed.volumes" -}}
{{ include "seedbed.tmpVolume" . }}
- name: experiment
  configMap: {name: {{ include "seedbed.fullname" .root }}-experiment}
{{ include "seedbed.credentialVolumes" . }}
{{- end -}}

{{/* Token and certificate of a pod. Environment and mounts: call with the root. */}}
{{- define "seedbed.credentialEnv" -}}
{{- if .Values.auth.enabled }}
- {name: SEEDBED_TOKEN_FILE, value: /etc/seedbed-auth/tokens}
{{- end }}
{{- end -}}

{{/* Whether learners prove their ranks to each other by a key each: "true" or nothing. */}}
{{- define "seedbed.rankKeys" -}}
{{- if and .Values.auth.enabled (include "seedbed.several" .) }}true{{ end -}}
{{- end -}}

{{- define "seedbed.credentialMounts" -}}
{{- if .Values.auth.enabled }}
- {name: auth, mountPath: /etc/seedbed-auth, readOnly: true}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/seedbed-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Each pod mounts the key of its own role only, as a folder, so that a rotation reaches it.
Call with (dict "root" $ "component" ROLE). */}}
{{- define "seedbed.credentialVolumes" -}}
{{- if and .root.Values.auth.enabled (or (ne .component "cost") .root.Values.auth.existingSecret) }}
{{- $role := get (dict "replay" "shard" "cost" "observer") .component | default .component }}
- name: auth
  secret:
    secretName: {{ include "seedbed.authSecret" .root }}
    items: [{key: {{ $role }}, path: tokens}]
    defaultMode: 0440
{{- end }}
{{- if and .root.Values.tls.enabled (ne .component "cost") }}
- name: tls
  secret: {secretName: {{ include "seedbed.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Arguments of a pod that calls. */}}
{{- define "seedbed.credentialArgs" -}}
{{- if .Values.tls.enabled }}
- --tls=/etc/seedbed-tls
- --tls-release={{ include "seedbed.fullname" . }}.{{ .Release.Namespace }}
{{- end }}
{{- end -}}

{{/* Arguments of a pod that listens: without any credential it serves every client. */}}
{{- define "seedbed.listenArgs" -}}
{{- include "seedbed.credentialArgs" . }}
{{- if not (or .Values.tls.enabled .Values.auth.enabled) }}
- --insecure
{{- end }}
{{- end -}}

{{/* The account by which the admission policy of seedbed-platform finds the meter of a workload. */}}
{{- define "seedbed.meterAnnotation" -}}
{{- if .Values.cost.enabled -}}
seedbed.dev/meter: {{ include "seedbed.serviceAccountName" (dict "root" . "component" "cost") }}
{{- end -}}
{{- end -}}

{{/* Whether the meter makes the tokens: "true" or nothing. */}}
{{- define "seedbed.makesTokens" -}}
{{- if and .Values.auth.enabled (not .Values.auth.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* Secrets that cert-manager has made for the release, and does not delete with it. A JSON list. */}}
{{- define "seedbed.certificateSecrets" -}}
{{- $secrets := list -}}
{{- if and .Values.rbac.create (include "seedbed.makesCertificates" .) -}}
  {{- range $role := list "learner" "actor" "replay" -}}
    {{- if or (ne $role "replay") $.Values.replay.shards }}{{ $secrets = append $secrets (include "seedbed.tlsSecret" (dict "root" $ "component" $role)) }}{{ end -}}
  {{- end -}}
  {{- if not .Values.tls.issuer.name }}{{ $secrets = append $secrets (printf "%s-authority" (include "seedbed.fullname" .)) }}{{ end -}}
{{- end -}}
{{- $secrets | toJson -}}
{{- end -}}

{{- define "seedbed.authSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "seedbed.fullname" .)) }}
{{- end -}}

{{/* The pod block of a role, as JSON: `pod` with the role's own laid over it, maps key by key, lists
behind those; an item with a name that both have (a mount: with a path) is the role's. Call with
(dict "root" $ "component" ROLE). */}}
{{- define "seedbed.pod" -}}
{{- $own := (get .root.Values .component).pod | default dict -}}
{{- $laid := mergeOverwrite (deepCopy .root.Values.pod) (deepCopy $own) -}}
{{- range $key, $items := .root.Values.pod -}}
  {{- if kindIs "slice" $items -}}
    {{- $named := eq $key "extraVolumeMounts" | ternary "mountPath" "name" -}}
    {{- $names := list -}}
    {{- range get $own $key | default list }}{{ $names = append $names (get . $named) }}{{ end -}}
    {{- $all := list -}}
    {{- range $items }}{{ if not (and (hasKey . $named) (has (get . $named) $names)) }}{{ $all = append $all . }}{{ end }}{{ end -}}
    {{- $_ := set $laid $key (concat $all (get $own $key | default list) | default list) -}}
  {{- end -}}
{{- end -}}
{{- $laid | toJson -}}
{{- end -}}

{{/* Scheduling: call with (dict "root" $ "component" ROLE), and "near" COMPONENT for its zone. */}}
{{- define "seedbed.nodeSelector" -}}
{{- $pod := include "seedbed.pod" . | fromJson -}}
{{- $workload := get .root.Values .component -}}
{{- $selector := dict -}}
{{- if $workload.spot }}{{ $_ := set $selector "cloud.google.com/gke-spot" "true" }}{{ end -}}
{{- with $pod.computeClass }}{{ $_ := set $selector "cloud.google.com/compute-class" . }}{{ end -}}
{{- with $workload.accelerator -}}
  {{- if eq .type "gpu" }}{{ with .name }}{{ $_ := set $selector "cloud.google.com/gke-accelerator" . }}{{ end }}{{ end -}}
  {{- if eq .type "tpu" -}}
    {{- $_ := set $selector "cloud.google.com/gke-tpu-accelerator" .name -}}
    {{- $_ := set $selector "cloud.google.com/gke-tpu-topology" .topology -}}
  {{- end -}}
{{- end -}}
{{- $selector = merge $pod.nodeSelector $selector -}}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "seedbed.tolerations" -}}
{{- $workload := get .root.Values .component -}}
{{- $tolerations := (include "seedbed.pod" . | fromJson).tolerations -}}
{{- if $workload.spot -}}
  {{- $tolerations = append $tolerations (dict "key" "cloud.google.com/gke-spot" "operator" "Equal" "value" "true" "effect" "NoSchedule") -}}
{{- end -}}
{{- with $workload.accelerator -}}
  {{- if eq .type "gpu" }}{{ $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") }}{{ end -}}
  {{- if eq .type "tpu" }}{{ $tolerations = append $tolerations (dict "key" "google.com/tpu" "operator" "Exists" "effect" "NoSchedule") }}{{ end -}}
{{- end -}}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "seedbed.scheduling" -}}
{{- $pod := include "seedbed.pod" . | fromJson -}}
{{ include "seedbed.nodeSelector" . }}
{{- include "seedbed.tolerations" . }}
{{- if or $pod.affinity .near }}
affinity:
  {{- with $pod.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  # Traffic between zones costs more than the cores that make it.
  podAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              {{- include "seedbed.selectorLabels" (dict "root" .root "component" .near) | nindent 14 }}
  {{- end }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Scrape annotations: call with (dict "root" $ "port" PORT). */}}
{{- define "seedbed.scrape" -}}
{{- if eq .root.Values.metrics.type "annotations" }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{/* What the cost meter reads. */}}
{{- define "seedbed.prices" -}}
{{- $scaling := pick .Values.actor.autoscaling "minReplicas" "maxReplicas" -}}
{{- $_ := set $scaling "enabled" (eq .Values.actor.autoscaling.type "price") -}}
{{ pick .Values.cost "priceTable" "prices" "defaultFamily" "defaultTier" "readNodes" | merge (dict "autoscaler" $scaling) | toYaml }}
{{- end -}}

{{- define "seedbed.tlsSecret" -}}
{{- $given := get .root.Values.tls (printf "%sSecret" .component) -}}
{{ $given | default (printf "%s-%s-tls" (include "seedbed.fullname" .root) .component) }}
{{- end -}}

{{/* Whether cert-manager makes the certificates: "true" or nothing. */}}
{{- define "seedbed.makesCertificates" -}}
{{- with .Values.tls -}}
{{- if and .enabled (not (or .learnerSecret .actorSecret .replaySecret)) }}true{{ end -}}
{{- end -}}
{{- end -}}
