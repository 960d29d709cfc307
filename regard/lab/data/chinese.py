"""Generated Chinese film reviews whose label depends on word order and negation.

The grammar has the three kinds of `regard.lab.data.synthetic`, with the same shares: plain
sentences, negated ones, and sentences that exchange a positive and a negative word, where a model
that ignores order is right half of the time. Chinese has no spaces between words.
"""

from regard.lab.data.examples import Example
from regard.lab.data.synthetic import Grammar, reviews

CHOICES = {
    "+": "精彩|动人|有趣|巧妙|迷人|好看",
    "-": "无聊|笨拙|乏味|糟糕|沉闷|难看",
    "+noun": "杰作|惊喜|享受|佳作",
    "-noun": "败笔|遗憾|折磨|烂片",
    "+verb": "喜欢|欣赏|享受",
    "-verb": "讨厌|反感|忍受",
    "part": "表演|情节|结局|配乐|对白|剧本|摄影|剪辑",
    "film": "电影|影片|剧情片|喜剧",
    "other": "小说|预告片|话剧|剧集",
    "them": "朋友们|影评人|我父母|邻居们|大多数人",
    "very": "|||很|相当|非常|真的",
}
CHINESE = Grammar(
    {
        "plain": (
            "{part}{very}{+}。",
            "多么{+}的{film}！",
            "{part}{+}，{part}也{+}。",
            "这部{film}可以说是{+noun}。",
            "我{+verb}它的{part}。",
            "一部{very}{+}的{film}，{part}也{+}。",
            "光是{part}就让它成了{+noun}。",
        ),
        "negated": (
            "{part}一点也不{-}。",
            "没有人会说{part}{very}{-}。",
            "我不能说{part}{-}。",
            "把这部{film}叫作{-noun}是不对的。",
            "我从没觉得{part}{-}。",
            "我不会说{part}不{+}。",
            "{part}没有别人说的那么{-}。",
        ),
        "exchanged": (
            "它开头{-}，结尾却{+}。",
            "{part}不是{-}，而是{+}。",
            "与其说它{-}，不如说它{+}。",
            "{part}与其说{-}，倒不如说{+}。",
            "我{+verb}它，虽然{them}{-verb}它。",
            "它不是{-noun}，而是{+noun}。",
            "这部{film}是{+noun}，那部{other}是{-noun}。",
            # The neighbours are the same: the whole sentence matters.
            "我以为会看到一部{-}的{film}，却看到了一部{+}的{film}。",
            "在我看来，{other}是{-noun}，{film}是{+noun}。",
            "{them}看到的是一个{-}的故事，我看到的是一个{+}的故事。",
            "我说这是一部{+}的作品，{them}说这是一部{-}的作品。",
            "我{-verb}那部{other}，我{+verb}这部{film}。",
            "我{+verb}这部{film}，我{-verb}那部{other}。",
        ),
    },
    (
        "我在一个下雨的星期二看了它。",
        "是我姐姐选的。",
        "片长两个小时。",
        "我们在家里看的。",
        "它拍摄于九十年代。",
        "电影院坐了一半人。",
        "我一个人去的。",
        "故事发生在一个小镇上。",
    ),
    {slot: words.split("|") for slot, words in CHOICES.items()},
    space="",
)


def reviews_zh(count: int, seed: int = 0) -> list[Example]:
    """Return `count` distinct Chinese film reviews, half of them positive, in random order.

    >>> for review in reviews_zh(3, seed=3)[1:]:
    ...     print(review.label, "|", review.text)
    positive | 朋友们看到的是一个糟糕的故事，我看到的是一个有趣的故事。
    negative | 我讨厌它的剧本。故事发生在一个小镇上。
    """
    return reviews(count, seed, CHINESE, "reviews-zh")
