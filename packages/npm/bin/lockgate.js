#!/usr/bin/env node
'use strict';

const { spawn } = require('node:child_process');
const { path } = require('../index.js');

let program;
try {
  program = path();
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: 'inherit' });
// A terminal signals the child by itself; others know this process alone.
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT']) process.on(signal, () => child.kill(signal));
child.on('error', (error) => {
  console.error(`error: cannot run ${program}: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
