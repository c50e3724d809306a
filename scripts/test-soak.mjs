// `npm run test:soak [-- --minutes N]`: set-up, then real daemons that answer prompts for ten minutes while their memory is watched.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from './build-state.mjs';
import { afterSetUp } from './setup.mjs';

afterSetUp('tests', () => {
  const program = join(packageRoot, 'dist', 'test', 'soak', 'soak.js');
  const { status } = spawnSync(process.execPath, [program, ...process.argv.slice(2)], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
});
