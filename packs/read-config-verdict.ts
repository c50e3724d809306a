import { basename, dirname, join, resolve } from 'node:path';
import { type ConfigVerdict, judgeConfig } from './checkpoint/config-verdict.js';
import { readConfigFile, readWholeConfig } from './checkpoint/model-config.js';
import { isWeightFile, listFiles } from './checkpoint/weight-files.js';
import { isPackDirectory } from './format/open-pack.js';
import { fileExists } from '../shared/base/files/read-file.js';

/**
 * The verdict on a config.json, or on a directory that has one and no weights; null: the path is something else.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function readConfigVerdict(path: string): Promise<{ path: string; verdict: ConfigVerdict } | null> {
  const absolute = resolve(path);
  const config = absolute.endsWith('.json') ? absolute : join(absolute, 'config.json');
  if (!(await fileExists(config))) return null;
  if (config !== absolute && ((await isPackDirectory(absolute)) || (await listFiles(absolute)).some(isWeightFile)))
    return null;
  // A file of another name stands beside whatever else was downloaded.
  const isWhole = basename(config) === 'config.json';
  const value = isWhole ? await readWholeConfig(config, dirname(config)) : await readConfigFile(config);
  return { path: config, verdict: judgeConfig(value, config) };
}
