/** The demo model's template, with thoughts that the prompt opens unless a request forbids it. */
export const THINKING_TEMPLATE =
  "<|bos|>{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>\n{{ message['content'] }}<|end|>\n{% else %}" +
  "<|user|>\n{{ message['content'] }}<|end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n" +
  '{% if enable_thinking is not defined or enable_thinking %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}{% endif %}';
