import { someEntry } from '../model-config/some-entry.js';

/** Architectures that no family reads, with the reasons. `missing`: what odmoe lacks and may get; `never`: why no cluster could run them. */
type Unread = { readonly missing: readonly string[] } | { readonly never: string };

const CAPACITY: Unread = {
  never:
    'its experts have a capacity and drop tokens by what else is in the batch, so that no answer could be the same in every batch',
};

/** By a value of `architectures`, or by `model_type`. The operators are those of the classes in transformers 5.18. */
const UNREAD: Readonly<Record<string, Unread>> = {
  SwitchTransformersForConditionalGeneration: CAPACITY,
  switch_transformers: CAPACITY,
  Qwen4ExpForConditionalGeneration: {
    missing: [
      'residual streams with gates of low rank',
      'layers of n-grams',
      'an indexer of averaged blocks of positions',
    ],
  },
  InklingForConditionalGeneration: {
    missing: ['attention by learned distances', 'convolutions behind keys, values and branches'],
  },
  JambaForCausalLM: { missing: ['Mamba-1 layers'] },
  Llama4ForConditionalGeneration: { missing: ['attention in chunks', 'experts whose input the router scales'] },
  Llama4ForCausalLM: { missing: ['attention in chunks', 'experts whose input the router scales'] },
};

/** The first of the names that is known and not read; null: none is. */
export function unreadArchitecture(names: readonly string[]): ({ readonly name: string } & Unread) | null {
  const name = names.find((one) => Object.hasOwn(UNREAD, one));
  const unread = name === undefined ? undefined : UNREAD[name];
  return name === undefined || unread === undefined ? null : { name, ...unread };
}

/** True if a key of the config, or of an object in it, is about experts. */
export function namesExperts(value: unknown): boolean {
  return someEntry(value, ({ key }) => /expert|moe/.test(key));
}
