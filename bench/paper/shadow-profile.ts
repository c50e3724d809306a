import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseDocument } from 'yaml';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { deviceOf } from '../../engine/emulation/node-times.js';
import { shadowWeightBytes } from '../../engine/loading/choose-shadow-form.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** Room for every precision: the table says how much of it each one takes. */
const MEMORY_BYTES = 1e12;

/**
 * Writes a copy of a profile into the directory. In the copy the shadow's weights have the bytes of that precision, so that its time and memory
 * follow them; its overheads stay. Returns the copy's path. @throws USAGE if the profile has no shadow; CONFIG_INVALID
 */
export async function writeShadowProfile(
  profilePath: string,
  precision: ShadowPrecision,
  directory: string,
): Promise<string> {
  const profile = loadDeviceProfile(profilePath);
  deviceOf(profile, 'shadow');
  const { dense, expert } = shadowWeightBytes(shadowForm(precision), profile.model.shape.hiddenSize);
  const document = parseDocument(await readFile(profilePath, 'utf8'));
  document.setIn(['devices', 'shadow', 'weight_bytes'], dense);
  document.setIn(['devices', 'shadow', 'expert_weight_bytes'], expert);
  document.setIn(['devices', 'shadow', 'memory_bytes'], MEMORY_BYTES);
  const path = join(directory, `${basename(profilePath, '.yaml')} ${precision}.yaml`);
  await writeFile(path, document.toString());
  return path;
}
