import { appendFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { sha256Schema } from '../format/manifest.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { SLICING_JOURNAL_FILE } from '../format/pack-layout.js';
import { fileSize, parseLine, readLines } from '../packing/packing-journal.js';
import { SLICED_SPLITS } from './slice-pair.js';
import { type SlicedLayer, slicedLayerSchema } from './slices-manifest.js';

/** The plan names the weights that are sliced, and the pair of bits. A journal with another plan is useless. */
const slicingPlanSchema = z.strictObject({
  format: z.literal('odmoe-slicing'),
  odmoe_version: z.string(),
  split: z.enum(SLICED_SPLITS),
  source_fingerprint: sha256Schema,
});
export type SlicingPlan = z.infer<typeof slicingPlanSchema>;

/** The journal of slices in the making: a line with the plan, then a line for each finished layer. A last line cut short by a crash is ignored. */
export class SlicingJournal {
  /** Finished layers, by number. */
  readonly finished = new Map<number, SlicedLayer>();

  private constructor(
    private readonly directory: string,
    private readonly path: string,
  ) {}

  /** Opens the journal, or begins a new one where it has another plan. Layers with a file that has not its recorded size are unfinished. */
  static async open(directory: string, plan: SlicingPlan): Promise<SlicingJournal> {
    const journal = new SlicingJournal(directory, join(directory, SLICING_JOURNAL_FILE));
    const lines = await readLines(journal.path);
    const found = slicingPlanSchema.safeParse(parseLine(lines[0])).data;
    if (found === undefined || JSON.stringify(found) !== JSON.stringify(plan)) {
      await writeFile(journal.path, `${JSON.stringify(plan)}\n`, { flush: true });
      await syncDirectory(directory);
      return journal;
    }
    for (const line of lines.slice(1)) await journal.take(parseLine(line));
    return journal;
  }

  /** The layer is recorded on the disk when this resolves. */
  async record(layer: SlicedLayer): Promise<void> {
    // The newline at the begin ends a line that a crash may have cut short.
    await appendFile(this.path, `\n${JSON.stringify(layer)}\n`, { flush: true });
    this.finished.set(layer.layer, layer);
  }

  private async take(line: unknown): Promise<void> {
    const layer = slicedLayerSchema.safeParse(line).data;
    if (layer === undefined) return;
    for (const file of layer.files) {
      if ((await fileSize(join(this.directory, file.name))) !== file.size_bytes) return;
    }
    this.finished.set(layer.layer, layer);
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}
