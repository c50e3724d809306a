// `npm start [-- DEMO_OPTIONS]`: set-up, then `odmoe demo`.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import { afterSetUp } from './setup.mjs';

const FORWARDED_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

afterSetUp('start', () => {
  const demo = spawn(process.execPath, [join(packageRoot, 'bin', 'odmoe'), 'demo', ...process.argv.slice(2)], {
    stdio: 'inherit',
  });
  for (const signal of FORWARDED_SIGNALS) process.on(signal, () => demo.kill(signal));
  demo.on('exit', (status, signal) => process.exit(status ?? (signal ? 1 : 0)));
});
