{{- define "shaper-webhooks.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "shaper-webhooks.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "shaper-webhooks.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "shaper-webhooks.labels" -}}
helm.sh/chart: {{ include "shaper-webhooks.chart" . }}
{{ include "shaper-webhooks.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "shaper-webhooks.selectorLabels" -}}
app.kubernetes.io/name: {{ include "shaper-webhooks.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shaper-webhooks.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "shaper-webhooks.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The port that the API server calls. */}}
{{- define "shaper-webhooks.servicePort" -}}
{{- .Values.service.port | default .Values.webhookServer.port }}
{{- end }}

{{/* The Secret with the certificate of the server. */}}
{{- define "shaper-webhooks.certSecret" -}}
{{- if .Values.certificate.enabled -}}
{{ include "shaper-webhooks.fullname" . }}-cert
{{- else -}}
{{ required "certificate.existingSecret is needed when certificate.enabled is false" .Values.certificate.existingSecret }}
{{- end }}
{{- end }}

{{/* Whether the chart makes an authority of its own. */}}
{{- define "shaper-webhooks.ownAuthority" -}}
{{- if and .Values.certificate.enabled (not .Values.certificate.issuerRef.name) }}true{{ end }}
{{- end }}

{{/* Annotations of a webhook configuration: who injects the authority. */}}
{{- define "shaper-webhooks.configurationAnnotations" -}}
{{- $annotations := dict }}
{{- if .Values.certificate.enabled }}
{{- $suffix := ternary "ca" "cert" (eq (include "shaper-webhooks.ownAuthority" .) "true") }}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s-%s" .Release.Namespace (include "shaper-webhooks.fullname" .) $suffix) }}
{{- end }}
{{- with merge $annotations .Values.webhooks.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
One webhook. Takes root, phase (mutating or validating), verb, kind, operations and options.
An authority that is injected is never rendered, so that nobody sees a difference to undo.
*/}}
{{- define "shaper-webhooks.webhook" -}}
{{- $root := .root }}
- name: {{ .verb }}-{{ .kind }}.shaper.amahdha.com
  clientConfig:
    service:
      name: {{ include "shaper-webhooks.fullname" $root }}
      namespace: {{ $root.Release.Namespace }}
      {{- if eq $root.Values.webhooks.pathStyle "kubebuilder" }}
      path: /{{ .verb }}-shaper-amahdha-com-v1alpha1-{{ .kind }}
      {{- else }}
      path: /{{ .verb }}-{{ .kind }}
      {{- end }}
      port: {{ include "shaper-webhooks.servicePort" $root }}
    {{- if not $root.Values.certificate.enabled }}
    caBundle: {{ required "certificate.caBundle is needed when certificate.enabled is false" $root.Values.certificate.caBundle | b64enc }}
    {{- end }}
  rules:
  - apiGroups: [shaper.amahdha.com]
    apiVersions: [v1alpha1]
    operations: {{ toJson .operations }}
    resources: [{{ .kind }}s]
    scope: Namespaced
  admissionReviewVersions: {{ toJson $root.Values.webhooks.admissionReviewVersions }}
  sideEffects: None
  failurePolicy: {{ .options.failurePolicy }}
  timeoutSeconds: {{ .options.timeoutSeconds }}
  matchPolicy: {{ .options.matchPolicy }}
  {{- if eq .verb "mutate" }}
  reinvocationPolicy: {{ .options.reinvocationPolicy }}
  {{- end }}
  {{- with .options.namespaceSelector }}
  namespaceSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .options.objectSelector }}
  objectSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .options.matchConditions }}
  matchConditions:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "shaper-webhooks.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}
