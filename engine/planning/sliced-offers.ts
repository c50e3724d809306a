/** Sliced experts as an offer in place of lossless ones: bytes of a weight, and the loss as it was measured with this model or with another. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isPackDirectory, openAnyPack } from '../../packs/format/open-pack.js';
import { SLICED_SPLITS } from '../../packs/slices/slice-pair.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { fileExists, readWholeFile } from '../../shared/base/files/read-file.js';
import { qualityText } from '../../shared/settings/quality.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import type { StorageForm } from '../emulation/device-profile.js';
import { slicedStorage } from '../emulation/sliced-storage.js';

/** The share of critical executions of the offers between all and none. */
const CRITICAL_SHARE = 0.3;

export interface SlicedOffer {
  readonly asked: SlicedQuality;
  /** The same as the flag --quality takes it. */
  readonly quality: string;
  /** If only some executions read lower slices, storedBytes is the mean over executions; a slot has room for both slices. */
  readonly form: StorageForm;
  /** KL(lossless || sliced), mean over predicted tokens, natural logarithm. */
  readonly loss: number;
  readonly lossMeasuredOn: MeasuredModel;
}

/** The model with which losses were measured. */
export type MeasuredModel = 'this model' | 'demo model';

/**
 * The offers for a model, the most exact of each pair of bits first. With one expert a token all weights are 1, and no execution is more critical
 * than another.
 */
export function slicedOffers(expertsPerToken: number, lossMeasuredOn: MeasuredModel): SlicedOffer[] {
  return SLICED_SPLITS.flatMap((split) => {
    const whole = slicedStorage({ kind: 'high', split });
    const lowerBytes = whole.storedBytes - whole.exponentBytes;
    const offer = (asked: SlicedQuality, form = slicedStorage(asked)): SlicedOffer => {
      const quality = qualityText(asked);
      const loss = requirePresent(DEMO_LOSSES[quality], () => `the loss of ${quality} was measured.`);
      return { asked, quality, form, loss, lossMeasuredOn };
    };
    const [high, critical, low] = [
      offer({ kind: 'high', split }),
      offer(
        { kind: 'critical', split, share: CRITICAL_SHARE },
        { ...whole, storedBytes: whole.exponentBytes + CRITICAL_SHARE * lowerBytes },
      ),
      offer({ kind: 'low', split }),
    ];
    return expertsPerToken > 1 ? [high, critical, low] : [high, low];
  });
}

/** The model that comes with odmoe, by the fingerprint of its weights in a pack, and by its file as a checkpoint. */
const DEMO = {
  fingerprint: '4771b63d1bfa7bedb399f9be1d70fb044505e5ec9d5945c3fdebdd5d8bc1c833',
  file: 'model.safetensors',
  fileBytes: 13_944_336,
  fileSha256: '4c467f5ca41db662fa839b6197759fa67c341bceeca1fbbd03a31b0860312544',
};

/**
 * Losses of the demo model, by the text of a quality: "odmoe bench slices", tables "quality" (asym8, centred(8,4) and so on) and "theta" (the
 * critical share nearest to 0.3). docs/results.md, "Slices", lists them in a table; a test holds them equal to it and to a recorded run.
 */
export const DEMO_LOSSES: Readonly<Record<string, number>> = {
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
 * The model with which the losses of offers for a directory, a pack or a checkpoint, were measured. Packs have no losses of their own: thresholds in
 * slices.json and recall in shadow-recall.json are none.
 * @throws PACK_CORRUPT, STORAGE_FAILED
 */
export async function lossMeasuredOn(directory: string): Promise<MeasuredModel> {
  return (await isDemo(directory)) ? 'this model' : 'demo model';
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
