{{/* Names. */}}
{{- define "ebbtide.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "ebbtide.labels" -}}
app.kubernetes.io/name: ebbtide
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Selector of a component: dict "root" $ "component" "gateway". */}}
{{- define "ebbtide.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* metadata of an object: dict "root" "name" "component", and "namespace" unless the release's. */}}
{{- define "ebbtide.meta" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- include "ebbtide.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
{{- end -}}

{{/* An image: dict "root" "image". */}}
{{- define "ebbtide.image" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.images.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest }}{{ printf "%s@%s" $name .image.digest }}{{ else }}{{ printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) }}{{ end -}}
{{- end -}}

{{- define "ebbtide.credentials" -}}
{{- default (printf "%s-credentials" (include "ebbtide.fullname" .)) .Values.credentials.existingSecret -}}
{{- end -}}

{{/* Namespaces of jobs, as a JSON list. */}}
{{- define "ebbtide.jobNamespaces" -}}
{{- prepend .Values.jobs.moreNamespaces .Values.jobs.namespace | uniq | toJson -}}
{{- end -}}

{{- define "ebbtide.natsUrl" -}}
{{- if .Values.nats.install -}}
nats://{{ include "ebbtide.fullname" . }}-nats.{{ .Release.Namespace }}:4222
{{- else }}{{ .Values.nats.external.url }}{{ end -}}
{{- end -}}

{{- define "ebbtide.natsCopies" -}}
{{- if .Values.nats.copies }}{{ int .Values.nats.copies }}{{ else }}{{ ternary (int .Values.nats.replicas) 1 .Values.nats.install }}{{ end -}}
{{- end -}}

{{- define "ebbtide.valkeyUrl" -}}
{{- if .Values.valkey.install -}}
redis://{{ include "ebbtide.fullname" . }}-valkey.{{ .Release.Namespace }}:6379/0
{{- else }}{{ .Values.valkey.external.url }}{{ end -}}
{{- end -}}

{{/* The restricted standard, for every pod of the control plane. */}}
{{- define "ebbtide.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "ebbtide.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Labels and annotations of a pod, and where it goes: dict "root" "component" "values". */}}
{{- define "ebbtide.podMeta" -}}
labels:
  {{- include "ebbtide.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .values.labels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .values.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ebbtide.placement" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Spread over nodes: one more on a node than on another at most, if that can be. */}}
{{- define "ebbtide.spread" -}}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "ebbtide.selector" . | nindent 6 }}
{{- end -}}

{{/* Variables of operator and gateway: dict "root" "values". */}}
{{- define "ebbtide.env" -}}
- {name: HOME, value: /tmp}
- {name: EBBTIDE_CLUSTER, value: kubernetes}
- {name: EBBTIDE_BLOBS_URL, value: {{ .root.Values.objectStore.url | quote }}}
- {name: EBBTIDE_LOG_LEVEL, value: {{ .values.logLevel }}}
- name: EBBTIDE_POD
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- range $name, $value := .root.Values.objectStore.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- if .root.Values.objectStore.existingSecret }}
{{- range $name, $key := .root.Values.objectStore.secretKeys }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.root.Values.objectStore.existingSecret }}, key: {{ $key }}}}
{{- end }}
{{- end }}
{{- range $name, $value := .values.extraEnv }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Path of a file:// store; empty for others. */}}
{{- define "ebbtide.folder" -}}
{{- if hasPrefix "file://" .Values.objectStore.url }}{{ trimPrefix "file://" .Values.objectStore.url }}{{ end -}}
{{- end -}}

{{- define "ebbtide.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- with include "ebbtide.folder" . }}
- {name: store, mountPath: {{ . }}}
{{- end }}
{{- end -}}

{{- define "ebbtide.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 2Gi}
{{- if include "ebbtide.folder" . }}
- name: store
  persistentVolumeClaim: {claimName: {{ .Values.objectStore.volume.existingClaim }}}
{{- end }}
{{- end -}}

{{- define "ebbtide.probe" -}}
httpGet: {path: {{ .path | quote }}, port: {{ .port }}}
periodSeconds: 5
timeoutSeconds: 3
failureThreshold: {{ .failures }}
{{- end -}}
