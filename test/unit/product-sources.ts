import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

export interface Source {
  /** Path relative to the package. */
  readonly path: string;
  readonly text: string;
}

/** Every TypeScript source of these rooms. */
export function sourcesOf(rooms: readonly string[]): Source[] {
  return rooms.flatMap((room) =>
    readdirSync(join(packageRoot(), room), { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.tsx?$/.test(name))
      .map((name) => join(room, name))
      .map((path) => ({ path, text: readFileSync(join(packageRoot(), path), 'utf8') })),
  );
}
