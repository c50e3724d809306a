import { MOST_TAPS } from '../../shared/model/model-shape.js';
import type { ConfigReader } from './config-reader.js';

/** The number of positions that a convolution takes in. @throws MODEL_UNSUPPORTED: too many */
export function readTaps(config: ConfigReader, fallback: number, key: string): number {
  return checkedTaps(config, key, config.sizeOr(fallback, key));
}

/** `taps`, which the config has under that key. @throws MODEL_UNSUPPORTED: too many */
export function checkedTaps(config: ConfigReader, key: string, taps: number): number {
  if (taps > MOST_TAPS) throw config.unsupported(key, taps, `at most ${MOST_TAPS}`);
  return taps;
}
