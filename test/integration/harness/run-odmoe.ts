import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';

export const COMMAND_TIMEOUT_MS = 120_000;

/** Runs `odmoe` with these words, which must succeed, and returns its standard output. */
export function odmoe(...args: string[]): string {
  const command = [join(packageRoot(), 'bin', 'odmoe'), ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, command, {
    encoding: 'utf8',
    timeout: COMMAND_TIMEOUT_MS,
  });
  assert.equal(status, 0, stderr);
  return stdout;
}
