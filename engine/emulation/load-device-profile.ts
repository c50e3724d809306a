import { readFileSync, statSync } from 'node:fs';
import { parseDocument } from 'yaml';
import type { z } from 'zod';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { DeviceProfile } from './device-profile.js';
import { profileOf, profileSchema } from './profile-schema.js';

/** A profile is about one page of YAML. */
const PROFILE_LIMIT_BYTES = 1024 ** 2;
/** Most faults of a file that one message shows. */
const FAULTS_SHOWN_LIMIT = 20;
/** Most aliases in a YAML file, so that it cannot grow without limit. */
const ALIAS_LIMIT = 100;

/** Reads and checks a device profile (bench/profiles/). Throws CONFIG_INVALID, which names the file, the key and the valid values. */
export function loadDeviceProfile(path: string): DeviceProfile {
  let source: string;
  try {
    const { size } = statSync(path);
    if (size > PROFILE_LIMIT_BYTES) throw new Error(`${size} bytes, and a profile has at most ${PROFILE_LIMIT_BYTES}`);
    source = readFileSync(path, 'utf8');
  } catch (thrown) {
    const reason = toOdmoeError(thrown).message;
    throw new OdmoeError('CONFIG_INVALID', `cannot read the device profile ${path}: ${reason}`, { cause: thrown });
  }
  return parseDeviceProfile(source, path);
}

/** Like loadDeviceProfile, from text. */
export function parseDeviceProfile(source: string, path: string): DeviceProfile {
  const document = parseDocument(source, { uniqueKeys: true });
  const [fault] = document.errors;
  if (fault !== undefined) throw invalid(path, [fault.message]);
  let plain: unknown;
  try {
    plain = document.toJS({ maxAliasCount: ALIAS_LIMIT });
  } catch (thrown) {
    throw invalid(path, [toOdmoeError(thrown).message]);
  }
  const parsed = profileSchema.safeParse(plain);
  if (!parsed.success) throw invalid(path, parsed.error.issues.flatMap(faultsOf));
  return profileOf(parsed.data);
}

function faultsOf(issue: z.core.$ZodIssue): string[] {
  const path = issue.path.map(String).join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => `${path === '' ? key : `${path}.${key}`}: unknown key; remove it`);
  }
  if (path === '') return ['expected name, model, devices and network'];
  if (issue.code === 'invalid_type' && issue.message.startsWith('Invalid input')) {
    return [`${path}: expected a mapping of keys to values`];
  }
  return [`${path}: expected ${issue.message}`];
}

function invalid(path: string, faults: readonly string[]): OdmoeError {
  const shown = faults.slice(0, FAULTS_SHOWN_LIMIT);
  if (faults.length > shown.length) shown.push(`and ${faults.length - shown.length} more`);
  return new OdmoeError('CONFIG_INVALID', shown.map((fault) => `${path}: ${fault}`).join('\n'));
}
