// Package envtest starts the drop-in with controller-runtime's envtest, and uses it like the tests of an operator.
// KUBEBUILDER_ASSETS is the directory of the binaries, which may be upstream's kube-apiserver and etcd.
package envtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func pointer[T any](value T) *T { return &value }

func definition() *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"size": {Type: "integer", Maximum: pointer(10.0)},
				},
			},
		},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.test.lockgate.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.lockgate.dev",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
			}},
		},
	}
}

func rules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{
			APIGroups: []string{"test.lockgate.dev"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"},
		},
	}}
}

// environment is that of a typical suite_test.go: a CRD, and two webhooks with a Service reference, which envtest
// rewrites to URLs.
func environment() *envtest.Environment {
	service := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{
			Service: &admissionv1.ServiceReference{Namespace: "system", Name: "webhook", Path: &path},
		}
	}
	return &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()}},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
				Webhooks: []admissionv1.MutatingWebhook{{
					Name: "label.test.lockgate.dev", ClientConfig: service("/mutate"), Rules: rules(),
					SideEffects: pointer(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				}},
			}},
			ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "validating"},
				Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "name.test.lockgate.dev", ClientConfig: service("/validate"), Rules: rules(),
					SideEffects: pointer(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				}},
			}},
		},
	}
}

func widget(name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.lockgate.dev/v1", "kind": "Widget",
		"spec": map[string]any{"size": size},
	}}
	object.SetName(name)
	object.SetNamespace("default")
	return object
}

// manage runs a manager with both webhooks until the test ends.
func manage(t *testing.T, config *rest.Config, options envtest.WebhookInstallOptions) {
	t.Helper()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := manager.GetWebhookServer()
	server.Register("/mutate", &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, _ admission.Request) admission.Response {
			return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"seen": "yes"}))
		})})
	server.Register("/validate", &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			if strings.HasPrefix(request.Name, "bad") {
				return admission.Denied("bad names are not allowed")
			}
			return admission.Allowed("").WithWarnings("be careful")
		})})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	check := server.StartedChecker()
	deadline := time.Now().Add(20 * time.Second)
	for check(nil) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the webhook server does not listen")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestOperator(t *testing.T) {
	env := environment()
	started := time.Now()
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Start took %v", time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() {
		stopping := time.Now()
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("Stop took %v", time.Since(stopping).Round(time.Millisecond))
	})
	manage(t, config, env.WebhookInstallOptions)
	ctx := context.Background()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("webhooks mutate and deny", func(t *testing.T) {
		good := widget("good", 1)
		if err := admin.Create(ctx, good); err != nil {
			t.Fatal(err)
		}
		if good.GetLabels()["seen"] != "yes" {
			t.Errorf("not mutated: %v", good.Object)
		}
		err := admin.Create(ctx, widget("bad-1", 1))
		expected := `admission webhook "name.test.lockgate.dev" denied the request: bad names are not allowed`
		if !apierrors.IsForbidden(err) || err.Error() != expected {
			t.Errorf("not denied: %v", err)
		}
		if err := admin.Create(ctx, widget("large", 11)); !apierrors.IsInvalid(err) {
			t.Errorf("not validated: %v", err)
		}
	})

	t.Run("only the controllers of kube-apiserver run", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}
		if err := admin.Create(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{}
		key := client.ObjectKey{Namespace: "stays", Name: "default"}
		if err := admin.Get(ctx, key, account); !apierrors.IsNotFound(err) {
			t.Errorf("a service account was made: %v", err)
		}
		if err := admin.Delete(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
			t.Errorf("the namespace is gone: %v", err)
		}
	})

	t.Run("services are from the range", func(t *testing.T) {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if err := admin.Create(ctx, service); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(service.Spec.ClusterIP, "10.0.0.") {
			t.Errorf("ClusterIP %s is not in 10.0.0.0/24", service.Spec.ClusterIP)
		}
	})

	t.Run("users are those of envtest", func(t *testing.T) {
		user, err := env.AddUser(envtest.User{Name: "ann", Groups: []string{"dev", "ops"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ann, err := client.New(user.Config(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		pods := &corev1.PodList{}
		if err := ann.List(ctx, pods); !apierrors.IsForbidden(err) {
			t.Errorf("ann may list pods: %v", err)
		}
		review := &authenticationv1.SelfSubjectReview{}
		if err := ann.Create(ctx, review); err != nil {
			t.Fatal(err)
		}
		groups := strings.Join(review.Status.UserInfo.Groups, ",")
		if review.Status.UserInfo.Username != "ann" || groups != "dev,ops,system:authenticated" {
			t.Errorf("ann is %v", review.Status.UserInfo)
		}
		kubectl, err := user.Kubectl()
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := kubectl.Run("auth", "can-i", "list", "pods")
		if answer, _ := io.ReadAll(out); strings.TrimSpace(string(answer)) != "no" {
			t.Errorf("kubectl says %q (%v)", answer, err)
		}
	})

	t.Run("tokens name the issuer and are accepted", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: "default"}}
		if err := admin.Create(ctx, account); err != nil {
			t.Fatal(err)
		}
		request := &authenticationv1.TokenRequest{}
		if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
			t.Fatal(err)
		}
		claims, err := base64.RawURLEncoding.DecodeString(strings.Split(request.Status.Token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		if issuer := fmt.Sprintf(`"iss":%q`, config.Host); !strings.Contains(string(claims), issuer) {
			t.Errorf("%s is not in %s", issuer, claims)
		}
		robot := rest.AnonymousClientConfig(config)
		robot.BearerToken = request.Status.Token
		as, err := client.New(robot, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.SelfSubjectReview{}
		if err := as.Create(ctx, review); err != nil {
			t.Fatal(err)
		}
		if name := review.Status.UserInfo.Username; name != "system:serviceaccount:default:robot" {
			t.Errorf("the robot is %s", name)
		}
	})
}

// hostAddress returns an address of this machine that is valid in endpoints, or skips the test.
func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		network, isNetwork := address.(*net.IPNet)
		if isNetwork && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has loopback addresses only, which endpoints cannot have")
	return ""
}

// certificate issues a self-signed serving certificate for a name.
func certificate(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, bundle
}

// TestService calls a webhook behind a Service that is reachable through its EndpointSlice only.
func TestService(t *testing.T) {
	address := hostAddress(t)
	leaf, bundle := certificate(t, "hook.shop.svc")
	listener, err := tls.Listen("tcp", net.JoinHostPort(address, "0"), &tls.Config{Certificates: []tls.Certificate{leaf}})
	if err != nil {
		t.Fatal(err)
	}
	webhook := &http.Server{Handler: &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, _ admission.Request) admission.Response { return admission.Denied("called") })}}
	go func() { _ = webhook.Serve(listener) }()
	defer webhook.Close()
	port := int32(listener.Addr().(*net.TCPAddr).Port)

	env := &envtest.Environment{}
	// Without kube-proxy, kube-apiserver resolves endpoints only with this flag.
	env.ControlPlane.GetAPIServer().Configure().Set("enable-aggregator-routing", "true")
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "hook", Namespace: "shop"}
	sliceMeta := metav1.ObjectMeta{
		Name: "hook-1", Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: sliceMeta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: pointer("https"), Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		},
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "hook"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "hook.test.lockgate.dev", AdmissionReviewVersions: []string{"v1"},
				SideEffects: pointer(admissionv1.SideEffectClassNone),
				ClientConfig: admissionv1.WebhookClientConfig{
					CABundle: bundle, Service: &admissionv1.ServiceReference{Namespace: "shop", Name: "hook"},
				},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					},
				}},
			}},
		},
	} {
		if err := admin.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	// kube-apiserver's informers take a while to see the configuration.
	deadline := time.Now().Add(20 * time.Second)
	for {
		denied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Namespace: "default"}}
		err = admin.Create(ctx, denied)
		if err != nil && strings.HasSuffix(err.Error(), "denied the request: called") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the webhook was not called: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestStop stops a server with a hundred open watches.
func TestStop(t *testing.T) {
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		watch, err := clients.CoreV1().ConfigMaps("").Watch(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
	}
	stopping := time.Now()
	if err := env.Stop(); err != nil {
		if os.Getenv("CONTROL") == "" {
			t.Fatal(err)
		}
		t.Logf("the real server: %v", err)
	}
	t.Logf("Stop with 100 watches took %v", time.Since(stopping).Round(time.Millisecond))
}

// TestMany starts LOCKGATE_ENVIRONMENTS environments concurrently, and adds up their memory.
func TestMany(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("LOCKGATE_ENVIRONMENTS"))
	if err != nil {
		t.Skip("LOCKGATE_ENVIRONMENTS is not set")
	}
	environments := make([]*envtest.Environment, count)
	var group sync.WaitGroup
	started := time.Now()
	for i := range environments {
		group.Go(func() {
			environments[i] = environment()
			if _, err := environments[i].Start(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("%d environments started in %v", count, time.Since(started).Round(time.Millisecond))
	kib := 0
	for _, process := range descendants(t) {
		kib += proportional(t, process)
	}
	t.Logf("%d environments use %d MiB (proportional set size)", count, kib/1024)
	stopping := time.Now()
	for _, env := range environments {
		group.Go(func() {
			if err := env.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("%d environments stopped in %v", count, time.Since(stopping).Round(time.Millisecond))
}

// descendants returns the IDs of this process's children.
func descendants(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		after := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
		if len(after) > 1 && after[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// proportional returns the proportional set size of a process in KiB.
func proportional(t *testing.T, process string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + process + "/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "Pss:"); found {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("no Pss of process %s", process)
	return 0
}

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set: run `make conformance-go`")
		os.Exit(1)
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
