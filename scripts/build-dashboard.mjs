// Bundles the page that main serves (dashboard/) into dist/dashboard. The npm package of odmoe has the bundle and no sources of the page.
import { copyFileSync, mkdirSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import {
  BuildError,
  doStep,
  fileState,
  filesBelow,
  inputState,
  installedVersion,
  isDone,
  packageRoot,
} from './build-state.mjs';

const BUNDLED = ['app.js', 'app.css'];
const COPIED = [
  'index.html',
  'manifest.webmanifest',
  'icon.svg',
  'icon-192.png',
  'icon-512.png',
  'icon-maskable.png',
  'icon-apple.png',
];
/** The folders of the bundle's sources; npm packages come in addition. */
const SOURCE_MODULES = ['dashboard', 'shared/wire', 'shared/base/text'];
const PACKAGES = ['esbuild', 'preact', 'uplot', '@lezer/markdown'];
const STATE_PATH = 'dist/dashboard/.built';

export const DASHBOARD_OUTPUTS = [...BUNDLED, ...COPIED].map((name) => `dist/dashboard/${name}`);

function sourceState() {
  const sources = SOURCE_MODULES.flatMap((module) => filesBelow(module));
  return inputState([...sources, 'scripts/build-dashboard.mjs'], PACKAGES.map(installedVersion));
}

/** True also if there are no sources, because the npm package has the bundle alone. */
export function isDashboardBuilt() {
  if (filesBelow('dashboard').length === 0) return true;
  return DASHBOARD_OUTPUTS.every((path) => fileState(path) !== 'absent') && isDone(STATE_PATH, sourceState());
}

/** Throws BuildError if a source does not compile. */
export function buildDashboard() {
  if (!isDashboardBuilt()) doStep(STATE_PATH, sourceState(), bundle);
}

function bundle() {
  if (PACKAGES.some((name) => installedVersion(name) === 'none')) {
    throw new BuildError(`the page needs the npm packages ${PACKAGES.join(', ')}; run \`npm ci\``);
  }
  const esbuild = createRequire(import.meta.url)('esbuild');
  try {
    esbuild.buildSync({
      absWorkingDir: packageRoot,
      entryPoints: ['dashboard/app.tsx', 'dashboard/app.css'],
      outdir: 'dist/dashboard',
      bundle: true,
      minify: true,
      format: 'esm',
      target: 'es2022',
      tsconfig: 'dashboard/tsconfig.json',
      legalComments: 'none',
      logLevel: 'silent',
    });
  } catch (error) {
    const messages = error.errors ?? [];
    const lines = messages.map(
      ({ text, location }) => `${location ? `${location.file}:${location.line}: ` : ''}${text}`,
    );
    throw new BuildError(`the page does not compile:\n${lines.join('\n') || error.message}`);
  }
  mkdirSync(join(packageRoot, 'dist/dashboard'), { recursive: true });
  for (const name of COPIED)
    copyFileSync(join(packageRoot, 'dashboard', name), join(packageRoot, 'dist/dashboard', name));
  const { size } = statSync(join(packageRoot, 'dist/dashboard/app.js'));
  process.stderr.write(`page: ${Math.round(size / 1000)} KB of JavaScript\n`);
}
