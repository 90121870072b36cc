{{- define "lockgate-plugins.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lockgate-plugins.fullname" -}}
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

{{- define "lockgate-plugins.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lockgate-plugins.labels" -}}
helm.sh/chart: {{ include "lockgate-plugins.chart" . }}
{{ include "lockgate-plugins.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "lockgate-plugins.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lockgate-plugins.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lockgate-plugins.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lockgate-plugins.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "lockgate-plugins.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The port that the API server calls. */}}
{{- define "lockgate-plugins.servicePort" -}}
{{- .Values.service.port | default .Values.webhookServer.port }}
{{- end }}

{{/* The Secret with the certificate of the server. */}}
{{- define "lockgate-plugins.certSecret" -}}
{{- if .Values.certificate.enabled -}}
{{ include "lockgate-plugins.fullname" . }}-cert
{{- else -}}
{{ required "certificate.existingSecret is needed when certificate.enabled is false" .Values.certificate.existingSecret }}
{{- end }}
{{- end }}

{{/* Whether the chart makes an authority of its own. */}}
{{- define "lockgate-plugins.ownAuthority" -}}
{{- if and .Values.certificate.enabled (not .Values.certificate.issuerRef.name) }}true{{ end }}
{{- end }}

{{/* Annotations of a webhook configuration: who injects the authority. */}}
{{- define "lockgate-plugins.configurationAnnotations" -}}
{{- $annotations := dict }}
{{- if .Values.certificate.enabled }}
{{- $suffix := ternary "ca" "cert" (eq (include "lockgate-plugins.ownAuthority" .) "true") }}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s-%s" .Release.Namespace (include "lockgate-plugins.fullname" .) $suffix) }}
{{- end }}
{{- with merge $annotations .Values.webhooks.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The plugins that are enabled, as JSON: files/plugins.json has what `lockgate plugins list -o json` prints. */}}
{{- define "lockgate-plugins.enabled" -}}
{{- $known := (.Files.Get "files/plugins.json" | fromJson).plugins }}
{{- $enabled := list }}
{{- range $name := .Values.plugins }}
{{- $found := false }}
{{- range $plugin := $known }}
{{- if eq $plugin.name $name }}
{{- $found = true }}
{{- $enabled = append $enabled $plugin }}
{{- if and (eq $plugin.configuration "required") (not (hasKey $.Values.configuration $name)) }}
{{- fail (printf "plugin %s needs configuration.%s" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "plugin %s is unknown" $name) }}
{{- end }}
{{- end }}
{{- $enabled | toJson }}
{{- end }}

{{/*
The webhooks of the enabled plugins. Takes root and phase (mutating or validating).
An authority that is injected is never rendered, so that nobody sees a difference to undo.
*/}}
{{- define "lockgate-plugins.webhooks" -}}
{{- $root := .root }}
{{- $phase := .phase }}
{{- range $plugin := include "lockgate-plugins.enabled" $root | fromJsonArray }}
{{- range $webhook := get $plugin $phase }}
{{- $service := dict "name" (include "lockgate-plugins.fullname" $root) "namespace" $root.Release.Namespace "path" $webhook.clientConfig.service.path "port" (include "lockgate-plugins.servicePort" $root | int) }}
{{- $client := dict "service" $service }}
{{- if not $root.Values.certificate.enabled }}
{{- $_ := set $client "caBundle" (required "certificate.caBundle is needed when certificate.enabled is false" $root.Values.certificate.caBundle | b64enc) }}
{{- end }}
{{- $webhook = merge (dict "clientConfig" $client "failurePolicy" $root.Values.webhooks.failurePolicy "timeoutSeconds" ($root.Values.webhooks.timeoutSeconds | int)) $webhook }}
{{- if not (hasKey $webhook "namespaceSelector") }}
{{- $exempt := append $root.Values.webhooks.exemptNamespaces $root.Release.Namespace | uniq }}
{{- $_ := set $webhook "namespaceSelector" (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $exempt))) }}
{{- end }}
{{- with $root.Values.webhooks.matchConditions }}
{{- $_ := set $webhook "matchConditions" . }}
{{- end }}
{{- list $webhook | toYaml | nindent 0 }}
{{- end }}
{{- end }}
{{- end }}
