// `npm start [-- DEMO_OPTIONS]`: set-up, then `odmoe demo`.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import { afterSetUp } from './setup.mjs';

const FORWARDED_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
/** One Ctrl-C comes from the terminal, and from npm once more. The demo takes a second one as impatience. */
const SAME_KEY_MS = 500;

afterSetUp('start', () => {
  // In a session of its own, so that the terminal's Ctrl-C comes to it from here alone. It does not outlive this process.
  const command = [join(packageRoot, 'bin', 'odmoe'), 'demo', ...process.argv.slice(2), '--exit-with-parent'];
  const demo = spawn(process.execPath, command, { stdio: 'inherit', detached: true });
  let forwardedMs = -Infinity;
  for (const signal of FORWARDED_SIGNALS) {
    process.on(signal, () => {
      if (performance.now() - forwardedMs < SAME_KEY_MS) return;
      forwardedMs = performance.now();
      demo.kill(signal);
    });
  }
  demo.on('exit', (status, signal) => process.exit(status ?? (signal ? 1 : 0)));
});
