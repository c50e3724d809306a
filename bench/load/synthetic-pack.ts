import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import type { CodecSetting } from '../../packs/format/pack-codec.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { synthesizeCheckpoint } from '../synth/synthesize-checkpoint.js';

/** Experts of 3 x hidden x intermediate weights; the rest of the model is as small as it may be. */
export interface SyntheticPackSetting {
  layers: number;
  experts: number;
  activated: number;
  hidden: number;
  intermediate: number;
  codec: CodecSetting;
  shards: number;
}

/** A pack of random experts in a temporary directory, which is gone when `use` has ended. */
export async function withSyntheticPack<Result>(
  setting: SyntheticPackSetting,
  signal: AbortSignal,
  use: (pack: Pack) => Promise<Result>,
): Promise<Result> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-bench-'));
  try {
    const checkpoint = join(directory, 'checkpoint');
    const shape = {
      hidden_size: setting.hidden,
      intermediate_size: setting.intermediate,
      vocab_size: 32,
      head_dim: 8,
      num_hidden_layers: setting.layers,
      num_local_experts: setting.experts,
      num_attention_heads: 1,
      num_experts_per_tok: setting.activated,
      num_key_value_heads: 1,
      max_position_embeddings: 64,
    };
    await synthesizeCheckpoint(checkpoint, shape, { dtype: 'BF16', seed: 1, signal });
    const output = join(directory, 'pack');
    const { codec, shards } = setting;
    await packCheckpoint(
      checkpoint,
      output,
      { codec, shards, name: 'synthetic', onDamagedPack: 'refuse', signal },
      NATIVE_PACKING_TOOLS,
    );
    await rm(checkpoint, { recursive: true });
    return await use(await openPack(output));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
