import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

export interface Source {
  /** Path relative to the package. */
  readonly path: string;
  readonly text: string;
}

/** Every TypeScript source of these modules. */
export function sourcesOf(modules: readonly string[]): Source[] {
  return modules.flatMap((module) =>
    readdirSync(join(packageRoot(), module), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.tsx?$/.test(name))
      .map((name) => join(module, name))
      .map((path) => ({ path, text: readFileSync(join(packageRoot(), path), 'utf8') })),
  );
}
