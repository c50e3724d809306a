// `npm start [-- DEMO_OPTIONS]`: set-up, then `odmoe demo`.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import { afterSetUp } from './setup.mjs';

const FORWARDED_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
/** One Ctrl-C arrives twice: from the terminal and from npm. The second one must not reach the demo, which would then end at once. */
const SAME_KEY_MS = 500;

afterSetUp('start', () => {
  // The demo runs in a new session, so that the terminal's Ctrl-C reaches it through this process alone. It ends with this process.
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
