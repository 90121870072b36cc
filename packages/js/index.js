// A Kubernetes API server for tests: `lockgate envtest start` as an object that can be stopped.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

/** The program that LOCKGATE names, that of the package `lockgate`, or the first on PATH. */
function installed() {
  if (process.env.LOCKGATE) return process.env.LOCKGATE;
  try {
    return createRequire(import.meta.url)('lockgate').path();
  } catch {
    return 'lockgate';
  }
}

/**
 * Starts a server and waits until it is ready. The program is the one that `program` or LOCKGATE names, that of
 * the package `lockgate`, or the first on PATH; `args` are those of `lockgate envtest start`.
 */
export async function start({ args = [], program = installed(), timeout = 30_000 } = {}) {
  const child = spawn(program, ['envtest', 'start', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text) => {
    // The end of it is what matters, and a server may log for hours.
    said = (said + text).slice(-16_384);
  });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const lines = createInterface({ input: child.stdout });
  let timer;
  const line = await new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`${program} envtest start ${args.join(' ')}: ${why}\n${said}`));
    timer = setTimeout(() => {
      child.kill('SIGKILL');
      fail(`not ready after ${timeout} ms`);
    }, timeout);
    lines.once('line', resolve);
    child.once('error', (error) => fail(error.message));
    ended.then((code) => fail(`ended with code ${code}`));
  }).finally(() => clearTimeout(timer));
  const { url, ca, kubeconfig, pid } = JSON.parse(line);
  // A test that forgets to stop it ends all the same.
  child.unref();
  child.stdout.unref?.();
  child.stderr.unref?.();
  return {
    url,
    ca,
    kubeconfig,
    pid,
    async stop() {
      child.ref();
      child.kill('SIGTERM');
      await ended;
    },
  };
}
