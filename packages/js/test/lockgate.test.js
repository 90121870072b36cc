import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import https from 'node:https';
import { test } from 'node:test';

import { start } from '../index.js';
import setup from '../vitest.js';

function get({ url, ca }, path) {
  return new Promise((resolve, reject) => {
    https
      .get(url + path, { ca, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part) => (text += part)).on('end', () => resolve(text));
      })
      .on('error', reject);
  });
}

test('a server is ready, and stops', async () => {
  const server = await start();
  assert.equal(await get(server, '/readyz'), 'ok');
  assert.ok(readFileSync(server.kubeconfig, 'utf8').includes(server.url));
  await server.stop();
  assert.ok(!existsSync(server.kubeconfig));
  await assert.rejects(get(server, '/readyz'));
});

test('a start that fails says why', async () => {
  await assert.rejects(start({ args: ['--nothing'] }), /unexpected argument '--nothing'/);
  await assert.rejects(start({ program: '/nowhere/lockgate' }), /ENOENT/);
});

test('the setup of vitest sets KUBECONFIG', async () => {
  const teardown = await setup();
  assert.ok(existsSync(process.env.KUBECONFIG));
  await teardown();
  assert.ok(!existsSync(process.env.KUBECONFIG));
});
