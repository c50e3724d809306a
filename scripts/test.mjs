// `npm test [-- MOCHA_OPTIONS]`: set-up, then every test that needs no GPU.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterSetUp, packageRoot } from './setup.mjs';

afterSetUp('tests', () => {
  const specs = ['dist/test/unit/**/*.test.js', 'dist/test/integration/**/*.test.js'];
  const mocha = spawnSync(
    process.execPath,
    [join('node_modules', 'mocha', 'bin', 'mocha.js'), ...specs, ...process.argv.slice(2)],
    { cwd: packageRoot, stdio: 'inherit' },
  );
  process.exit(mocha.status ?? 1);
});
