// `npm run test:soak [-- --minutes N]` runs the set-up. Then real daemons answer prompts for ten minutes while the test measures their memory.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import { afterSetUp } from './setup.mjs';

afterSetUp('tests', () => {
  const program = join(packageRoot, 'dist', 'test', 'soak', 'soak.js');
  const { status } = spawnSync(process.execPath, [program, ...process.argv.slice(2)], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
});
