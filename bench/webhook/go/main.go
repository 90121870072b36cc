// The same webhooks as ../src/bin/server.rs, with controller-runtime.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type team struct{}

// Default labels Pods without a team.
func (team) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if _, ok := pod.Labels["team"]; !ok {
		pod.Labels["team"] = "none"
	}
	return nil
}

func (team) check(pod *corev1.Pod) (admission.Warnings, error) {
	for _, container := range pod.Spec.Containers {
		if container.Image == "" {
			return nil, fmt.Errorf("container %s has no image", container.Name)
		}
	}
	return nil, nil
}

func (t team) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return t.check(pod)
}

func (t team) ValidateUpdate(_ context.Context, _, pod *corev1.Pod) (admission.Warnings, error) {
	return t.check(pod)
}

func (team) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	port := flag.Int("port", 9443, "where to listen")
	certs := flag.String("certs", "", "the folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{
		Host:    "127.0.0.1",
		Port:    *port,
		CertDir: *certs,
		// As in kubebuilder's scaffold, and as the API server calls webhooks.
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }},
	})
	server.Register("/mutate", admission.WithDefaulter[*corev1.Pod](scheme, team{}))
	server.Register("/validate", admission.WithValidator[*corev1.Pod](scheme, team{}))
	if err := server.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
