import type { ConfigReader } from '../../model-config/config-reader.js';
import { GROUP_LIMIT } from '../../../shared/model/block-formats.js';

/**
 * Columns that share a scale; 0: the whole row, which files write as -1.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function groupColumns(config: ConfigReader, key = 'group_size'): number {
  const size = config.numberOr(null, key);
  if (size === -1) return 0;
  if (size !== null && Number.isInteger(size) && size > 0 && size <= GROUP_LIMIT && size % 32 === 0) return size;
  throw config.unsupported(key, size, '-1 (whole rows) or a multiple of 32');
}
