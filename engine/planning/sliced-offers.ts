/** Sliced experts as an offer in place of lossless ones: bytes of a weight, and the measured loss if there is a measurement. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isPackDirectory, openAnyPack } from '../../packs/format/open-pack.js';
import { SLICED_SPLITS } from '../../packs/slices/slice-pair.js';
import { fileExists, readWholeFile } from '../../shared/base/files/read-file.js';
import { qualityText } from '../../shared/settings/quality.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import type { StorageForm } from '../emulation/device-profile.js';
import { slicedStorage } from '../emulation/sliced-storage.js';

/** The share of critical executions of the offers between all and none. */
const CRITICAL_SHARE = 0.3;

export interface SlicedOffer {
  /** As the flag --quality takes it. */
  readonly quality: string;
  /** If only some executions read lower slices, storedBytes is the mean over executions; a slot has room for both slices. */
  readonly form: StorageForm;
  /** KL(lossless || sliced), mean over predicted tokens, natural logarithm; null: not measured for this model. */
  readonly loss: number | null;
}

/** The offers for a model, the most exact of each pair of bits first. `losses`: null: none were measured for it. */
export function slicedOffers(losses: MeasuredLosses | null): SlicedOffer[] {
  return SLICED_SPLITS.flatMap((split) => {
    const whole = slicedStorage({ kind: 'high', split });
    const lowerBytes = whole.storedBytes - whole.exponentBytes;
    const offer = (asked: SlicedQuality, form = slicedStorage(asked)): SlicedOffer => {
      const quality = qualityText(asked);
      return { quality, form, loss: losses?.[quality] ?? null };
    };
    return [
      offer({ kind: 'high', split }),
      offer(
        { kind: 'critical', split, share: CRITICAL_SHARE },
        { ...whole, storedBytes: whole.exponentBytes + CRITICAL_SHARE * lowerBytes },
      ),
      offer({ kind: 'low', split }),
    ];
  });
}

/** Losses by the text of a quality. */
export type MeasuredLosses = Readonly<Record<string, number>>;

/** The model that comes with odmoe, by the fingerprint of its weights in a pack, and by its file as a checkpoint. */
const DEMO = {
  fingerprint: '4771b63d1bfa7bedb399f9be1d70fb044505e5ec9d5945c3fdebdd5d8bc1c833',
  file: 'model.safetensors',
  fileBytes: 13_944_336,
  fileSha256: '4c467f5ca41db662fa839b6197759fa67c341bceeca1fbbd03a31b0860312544',
};

/** From "odmoe bench slices", table "quality" (docs/results.md, "Slices"): asym8, dbsc(8,4) at a critical share of 0.3, centred(8,4), and so on. */
const DEMO_LOSSES: MeasuredLosses = {
  'sliced(8,4)': 7.2e-7,
  'sliced(8,4,critical=0.3)': 2.4e-4,
  'sliced(8,4,low)': 3.2e-4,
  'sliced(6,3)': 2.0e-5,
  'sliced(6,3,critical=0.3)': 3.1e-4,
  'sliced(6,3,low)': 9.4e-4,
  'sliced(4,2)': 4.1e-4,
  'sliced(4,2,critical=0.3)': 6.7e-4,
  'sliced(4,2,low)': 4.8e-3,
};

/**
 * The losses that were measured with the weights in a directory, a pack or a checkpoint; null: none were.
 * @throws PACK_CORRUPT, STORAGE_FAILED
 */
export async function measuredLosses(directory: string): Promise<MeasuredLosses | null> {
  return (await isDemo(directory)) ? DEMO_LOSSES : null;
}

async function isDemo(directory: string): Promise<boolean> {
  if (await isPackDirectory(directory)) {
    return (await openAnyPack(directory)).manifest.source.fingerprint === DEMO.fingerprint;
  }
  const path = join(directory, DEMO.file);
  if (!(await fileExists(path)) || (await stat(path)).size !== DEMO.fileBytes) return false;
  return (
    createHash('sha256')
      .update(await readWholeFile(path))
      .digest('hex') === DEMO.fileSha256
  );
}
