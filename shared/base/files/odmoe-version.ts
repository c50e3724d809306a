import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { packageRoot } from './package-root.js';

let version: string | null = null;

/** Version of this odmoe, as its package.json gives it; read once. */
export function odmoeVersion(): string {
  version ??= readVersion();
  return version;
}

function readVersion(): string {
  const content: unknown = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8'));
  return z.object({ version: z.string() }).parse(content).version;
}
