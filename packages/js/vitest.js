// `globalSetup: ['lockgate-test/vitest']` of vitest: one server for all tests, whose kubeconfig is in KUBECONFIG.
// LOCKGATE_ARGS has further arguments of `lockgate envtest start`, separated by spaces.

import { start } from './index.js';

export default async function setup() {
  const args = (process.env.LOCKGATE_ARGS ?? '').split(' ').filter(Boolean);
  const server = await start({ args });
  process.env.KUBECONFIG = server.kubeconfig;
  return () => server.stop();
}
